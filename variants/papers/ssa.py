"""Scaled signed averaging (paper 003)."""

from typing import Literal

from variants.number import Number, PerScalar
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.scores.ssa import SSA


@named_operator(
    "003",
    limits=(Limit("n, 1/b -> inf", {"score.n": 1e7, "score.b": 1e-7}, softmax, within=1e-4),),
    traps=(
        "The paper trains n and b per head from 1.5 and 1. Its released GPT-2 code trains them per layer from e^0.4 "
        "and e, as exponentials without n >= 1. Its later code trains n per layer from 1.5, with b fixed at 0.8.",
        "That GPT-2 code does not call the score if fused attention is available: the run called SSA is softmax.",
        "Formulas by sgn and |z| have gradient 0 at z = 0 in autograd; the slope there is n b.",
    ),
)
def ssa(
    n: float = 1.5,
    b: float = 1.0,
    *,
    per: PerScalar = "head",
    b_per: PerScalar | None = None,
    n_link: Literal["at_least_one", "positive"] = "at_least_one",
    name: str = "SSA",
) -> Operator:
    """SSA scores under the ordinary sum; n and b per head as in the paper, starting at 1.5 and 1.

    "constant" is fixed. `b_per` is b's own granularity, by default n's. The variants of released code:
    `ssa(math.exp(0.4), math.e, per="layer", n_link="positive")`, `ssa(1.5, 0.8, per="layer", b_per="constant")`, and
    `ssa(2.0, per="constant")`.
    """
    return Operator(
        name=name,
        score=SSA(
            n=Number(init=n, per=per, link=n_link),
            b=Number(init=b, per=per if b_per is None else b_per, link="positive"),
        ),
    )
