"""The square:  f(a) = a^2.  A very negative logit counts as much as a very positive one."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import PlainScore, Range


class Square(PlainScore):
    """Even and not negative."""

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"
    range: ClassVar[Range] = "nonnegative"
    homogeneous: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = ("At a = 0 its gradient is 0: with all logits 0 nothing is learned.",)

    kind: Literal["square"] = "square"

    def score(self, a: Tensor) -> Tensor:
        return a.square()

    def oracle(self, a: float) -> float:
        return a * a
