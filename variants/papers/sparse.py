"""Sparse distributions in place of softmax (baselines of paper 003)."""

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.entmax15 import Entmax15
from variants.stages.normalisers.sparsemax import Sparsemax

_SCALED = (
    "Unlike softmax they are not smooth in the scale: with 1 / sqrt(d) kept, a fresh model's weights are all nonzero."
)


_EQUAL = Limit("all logits equal", {}, softmax, where="logits of 0")


@named_operator(
    "003", limits=(_EQUAL,), traps=(_SCALED, "One key has all the weight once its logit is 1 above all others.")
)
def sparsemax(*, name: str = "Sparsemax") -> Operator:
    """The nearest distribution to the logits; many weights are exactly 0."""
    return Operator(name=name, normaliser=Sparsemax())


@named_operator(
    "003",
    limits=(_EQUAL,),
    traps=(
        _SCALED,
        "One key has all the weight once its logit is 2 above all others.",
        "The paper does not give alpha; 1.5 is the value that has a closed form.",
    ),
)
def entmax15(*, name: str = "Entmax-1.5") -> Operator:
    """Between softmax and sparsemax: alpha = 1.5."""
    return Operator(name=name, normaliser=Entmax15())
