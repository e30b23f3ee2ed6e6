"""The logit as it is:  f(a) = a.

Not below 0 only where its logit is not: products of nonnegative features, which is linear attention.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import PlainScore, Range


class Identity(PlainScore):
    """f(a) = a."""

    source: ClassVar[str] = "When Attention Sink Emerges, table 4"
    range: ClassVar[Range] = "as its logit"
    homogeneous: ClassVar[bool] = True

    kind: Literal["identity"] = "identity"

    def score(self, a: Tensor) -> Tensor:
        return a

    def oracle(self, a: float) -> float:
        return a
