"""Affine-Scaled Attention, alone and with a gate on its output (paper 000)."""

from typing import Literal

from variants.number import Number, RunningMean
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.output_gates.per_channel import PerChannel
from variants.stages.rescales.affine import Affine

_IS_SOFTMAX = {"rescale.scale": 1.0, "rescale.mean": 1.0}


@named_operator(
    "000",
    limits=(Limit("alpha = mean = 1", _IS_SOFTMAX, softmax),),
    traps=(
        "The paper divides by the key length and draws row sums that differ by query, which n='context' gives. "
        "The default here, n='visible', keeps prefixes consistent and gives every query of a head the same sum.",
    ),
)
def affine_scaled(
    link: Literal["clipped", "unit"] = "clipped",
    *,
    momentum: float = 0.9,
    n: Literal["visible", "context"] = "visible",
    name: str = "Affine-Scaled",
) -> Operator:
    """Weights scaled by alpha of the token, and a uniform share for what alpha differs from its running mean."""
    scale, mean = Number(init=0.5, per="token", link=link), RunningMean(of="scale", momentum=momentum)
    return Operator(name=name, rescale=Affine(scale=scale, mean=mean, n=n))


@named_operator("000", limits=(Limit("alpha = mean = gate = 1", {**_IS_SOFTMAX, "output_gate.opening": 1.0}, softmax),))
def affine_gated(
    link: Literal["clipped", "unit"] = "clipped",
    *,
    momentum: float = 0.9,
    n: Literal["visible", "context"] = "visible",
    name: str = "Affine-Scaled + Gated",
) -> Operator:
    """Affine-Scaled, then a gate per channel on the output."""
    return affine_scaled(link, momentum=momentum, n=n, name=name).changed(output_gate=PerChannel())
