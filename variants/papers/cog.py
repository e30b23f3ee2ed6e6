"""Cog attention (Lv et al. 2024), a baseline of paper 002: softmax of sizes, with the signs put back."""

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.absolute import Absolute
from variants.stages.scores.signed_exponential import SignedExponential


@named_operator(
    "002",
    limits=(Limit("all logits above 0", {}, softmax, where="logits above 0"),),
    traps=(
        "The released code keeps softmax in the first and the last layer; paper 002 has Cog in the top half.",
        "Weights jump where a logit changes its sign, and the sign has no gradient: precision of the logits matters.",
        "It is softmax only for queries all of whose logits are above 0.",
    ),
)
def cog(*, name: str = "Cog") -> Operator:
    """sgn(z) softmax(|z|): weights of both signs whose sizes sum to one."""
    return Operator(name=name, score=SignedExponential(), normaliser=Absolute())
