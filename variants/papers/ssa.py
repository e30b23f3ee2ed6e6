"""Scaled signed averaging (paper 003)."""

from typing import Literal

from variants.number import Number
from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.named import Limit, named
from variants.scores.ssa import SSA


@named("003", limits=(Limit("n, 1/b -> inf", {"score.n": 1e7, "score.b": 1e-7}, softmax, within=1e-4),))
def ssa(
    n: float = 1.5, b: float = 1.0, *, per: Literal["constant", "layer", "head", "query"] = "head", name: str = "SSA"
) -> Operator:
    """SSA scores under the ordinary sum; n and b per head as in the paper, starting at 1.5 and 1."""
    return Operator(
        name=name,
        score=SSA(n=Number(init=n, per=per, link="at_least_one"), b=Number(init=b, per=per, link="positive")),
    )
