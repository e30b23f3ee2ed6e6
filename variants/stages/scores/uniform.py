"""Every key counts the same:  f(a) = 1.  Under the sum this is the mean of the visible values.

Queries and keys have no effect; their gradients are 0. Whatever else makes or thresholds logits is refused beside it,
except in head groups, where other heads have other scores.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import LogScore, Range


class Uniform(LogScore):
    """f = 1."""

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C (uniform averaging)"
    range: ClassVar[Range] = "constant"
    homogeneous: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The projections of queries and keys are parameters without a purpose: weight decay shrinks them.",
    )

    kind: Literal["uniform"] = "uniform"

    def log_score(self, a: Tensor) -> Tensor:
        return a * 0  # in the graph, so that gradients are 0 and not missing

    def oracle(self, a: float) -> float:  # noqa: ARG002
        return 1.0
