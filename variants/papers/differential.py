"""Differential attention (Ye et al. 2025), a baseline of paper 002."""

import math
from typing import Literal

from variants.number import ByDepth, Contrast, Number
from variants.operator import Operator
from variants.papers.catalogue import Limit, named_operator
from variants.stages.head_norms.rms import RMS
from variants.stages.merges.difference import Difference
from variants.stages.signals import Signals
from variants.stages.transforms.temperature import Temperature


def _first_map() -> Operator:
    """Softmax on half of the channels, at their own scale, normed."""
    half = Temperature(tau=Number(init=math.sqrt(0.5), link="positive"))
    return Operator(
        name="softmax on the first signal", transform=half, head_norm=RMS(factor=ByDepth(init=0.8, deep=0.2))
    )


@named_operator(
    "002",
    limits=(
        Limit("lambda = 0, q and k within the first signal", {"merge.factor": 0.0}, _first_map, where="first signal"),
    ),
    traps=(
        "It adds six vectors of one signal's width per layer; paper 002 says that it adds no parameters.",
        "With lambda = 0 it is softmax on the first signal, still normed and multiplied by 1 - lambda_init.",
        "The output for the first token is the normed value times 1 - lambda_init, whatever lambda is below 1.",
    ),
)
def differential(
    per: Literal["layer", "head", "query"] = "layer",
    *,
    form: Literal["vectors", "scalar"] = "vectors",
    heads: Literal["halved", "kept"] = "halved",
    name: str = "Differential",
) -> Operator:
    """One map less lambda times another, normed per head. `per` and `form` are lambda's.

    Raises pydantic's ValidationError for per="query" with form="vectors".
    """
    factor = Contrast(init=0.2, deep=0.8, per=per, form=form)
    return Operator(
        name=name,
        signals=Signals(count=2),
        merge=Difference(factor=factor, heads=heads),
        head_norm=RMS(factor=ByDepth(init=0.8, deep=0.2)),
    )
