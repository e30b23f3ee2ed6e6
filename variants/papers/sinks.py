"""Softmax with room for nothing: off by one, and a sink that is learned (paper 000)."""

import math
from typing import Literal

from grid.errors import SpecError
from variants.number import Number
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.sink import Sink

_GONE = Limit("s -> -inf", {"normaliser.logit": -60.0}, softmax)


@named_operator("000", limits=(_GONE,))
def off_by_one(n: float = 1.0, *, name: str = "Off by one") -> Operator:
    """Softmax with n added to the sum: n = 1 is off by one, and the same as n more keys and values of zero.

    Raises:
        SpecError: n is not above 0.
    """
    if not n > 0:
        raise SpecError(f"what is added to the sum is above 0; got {n}, and for 0 there is softmax()")
    return Operator(name=name, normaliser=Sink(logit=Number(init=math.log(n))))


@named_operator(
    "000",
    limits=(_GONE, Limit("s = 0", {"normaliser.logit": 0.0}, off_by_one)),
    traps=(
        "Released models start s at what was trained or at small noise; from 0, as here, it starts as off by one.",
        "s is per query head, not divided by sqrt(d), and not decayed: decay pulls it to off by one, not to softmax.",
    ),
)
def learned_sink(init: float = 0.0, *, per: Literal["layer", "head", "query"] = "head", name: str = "Sink") -> Operator:
    """Softmax with a learned logit beside the keys' that has no value; per head as in GPT-OSS."""
    return Operator(name=name, normaliser=Sink(logit=Number(init=init, per=per)))
