"""Operators of paper 000: Affine-Scaled Attention and its baselines, softmax with a sink or a gate on the output."""

import math
from typing import Literal

from ablate.grid.errors import SpecError
from ablate.variants.number import Number, RunningMean, Vector
from ablate.variants.operator import Operator
from ablate.variants.papers.catalogue import Limit, named_operator, softmax
from ablate.variants.stages.normalisers import Sink
from ablate.variants.stages.output_gates import PerChannel, PerHead
from ablate.variants.stages.rescales import Affine


def _per_channel(projection_std: float) -> PerChannel:
    return PerChannel(opening=Vector(init=0.5, per="token", link="unit", projection_std=projection_std))


_IS_SOFTMAX = {"rescale.scale": 1.0, "rescale.mean": 1.0}


@named_operator(
    "000",
    limits=(Limit("alpha = mean = 1", _IS_SOFTMAX, softmax),),
    pitfalls=(
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
    projection_std: float = 0.02,
    name: str = "Affine-Scaled + Gated",
) -> Operator:
    """Affine-Scaled, then a gate per channel on the output, which starts as `gated_elements` does."""
    return affine_scaled(link, momentum=momentum, n=n, name=name).changed(output_gate=_per_channel(projection_std))


_GONE = Limit("s -> -inf", {"normaliser.logit": -60.0}, softmax)


@named_operator("000", limits=(_GONE,))
def off_by_one(n: float = 1.0, *, name: str = "Off by one") -> Operator:
    """Softmax with n added to the sum: n = 1 is off by one, and the same as n more keys and values of zero.

    Raises SpecError if n is not above 0.
    """
    if not n > 0:
        raise SpecError(f"n={n} is not above 0, as what is added to the sum; for 0 there is softmax()")
    return Operator(name=name, normaliser=Sink(logit=Number(init=math.log(n))))


@named_operator(
    "000",
    limits=(_GONE, Limit("s = 0", {"normaliser.logit": 0.0}, off_by_one)),
    pitfalls=(
        "Released models start s at what was trained or at small noise; from 0, as here, it starts as off by one.",
        "s is per query head, not divided by sqrt(d), and not decayed: decay pulls it to off by one, not to softmax.",
    ),
)
def learned_sink(init: float = 0.0, *, per: Literal["layer", "head", "query"] = "head", name: str = "Sink") -> Operator:
    """Softmax with a learned logit beside the keys' that has no value; per head as in GPT-OSS."""
    return Operator(name=name, normaliser=Sink(logit=Number(init=init, per=per)))


_OPEN = Limit("gate = 1", {"output_gate.opening": 1.0}, softmax)
_HALF = "The gate is about half open at the start, so the outputs of heads are half as large as softmax's."


@named_operator("000", limits=(_OPEN,), pitfalls=(_HALF,))
def gated_heads(*, projection_std: float = 0.02, name: str = "Gated heads") -> Operator:
    """One gate per head and token, from the layer's input.

    The projection starts at random with `projection_std`, as in the released code of gated attention.
    """
    opening = Number(init=0.5, per="token", link="unit", projection_std=projection_std)
    return Operator(name=name, output_gate=PerHead(opening=opening))


@named_operator(
    "000", limits=(_OPEN,), pitfalls=(_HALF, "The overhead that paper 000 reports for Gated is this one's.")
)
def gated_elements(*, projection_std: float = 0.02, name: str = "Gated elements") -> Operator:
    """One gate per channel, head and token, from the layer's input; `projection_std` is as in `gated_heads`."""
    return Operator(name=name, output_gate=_per_channel(projection_std))
