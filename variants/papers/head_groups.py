"""Different scores in different heads (baselines of paper 003)."""

from typing import Literal

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.absolute import Absolute
from variants.stages.normalisers.count import Count
from variants.stages.scores.exponential import Exponential
from variants.stages.scores.head_groups import HeadGroups
from variants.stages.scores.relu import Relu
from variants.stages.scores.square import Square
from variants.stages.scores.tanh import Tanh
from variants.stages.scores.uniform import Uniform


@named_operator(
    "003",
    limits=(Limit("all logits equal", {}, softmax, where="logits of 0"),),
    traps=(
        "The second half's projections of queries and keys are parameters without a purpose.",
        "Averaging is over the visible tokens, not over the whole length.",
    ),
)
def soft_avg(*, name: str = "SOFT/AVG") -> Operator:
    """Softmax in the first half of the heads, the mean of the visible values in the second."""
    return Operator(name=name, score=HeadGroups(parts=(Exponential(), Uniform())))


@named_operator(
    "003",
    traps=(
        "The paper does not say how these scores are normalised; divided='count' takes means over the visible keys.",
        "At logits of 0 only the averaging heads have an output.",
    ),
)
def four_scores(divided: Literal["count", "absolute"] = "count", *, name: str = "Four scores") -> Operator:
    """tanh, mean, ReLU and square, each in a quarter of the heads.

    `divided` by the number of visible keys, or by the sum of the scores' sizes.
    """
    return Operator(
        name=name,
        score=HeadGroups(parts=(Tanh(), Uniform(), Relu(), Square())),
        normaliser=Count() if divided == "count" else Absolute(),
    )
