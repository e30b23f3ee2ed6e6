"""The rectifier:  f(a) = max(a, 0).  At a = 0 its gradient is 0."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import PlainScore, Range


class Relu(PlainScore):
    """Keys with a negative logit count for nothing."""

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"
    range: ClassVar[Range] = "nonnegative"
    homogeneous: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "With all logits 0, as where queries start at zero, all weights are 0 and nothing is learned.",
    )

    kind: Literal["relu"] = "relu"

    def score(self, a: Tensor) -> Tensor:
        return a.relu()

    def oracle(self, a: float) -> float:
        return max(a, 0.0)
