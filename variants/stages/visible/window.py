"""A sliding window: a query sees itself and the keys less than w away.

    j is seen  <=>  the model lets i see j  and  |i - j| < w

In a causal model that is the last w keys, the query's own among them. Counting is that of "w keys"; libraries that take
(left, right) are given (w - 1, 0).
"""

from typing import ClassVar, Literal, Self

from pydantic import PositiveInt
from torch import Tensor

from variants.stages.families import Visible


class Window(Visible):
    """Keys less than `size` away."""

    source: ClassVar[str] = "When Attention Sink Emerges, section 6 (shifted window attention)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Layers pass information on: with L layers a token still depends on L (w - 1) tokens before it.",
    )

    kind: Literal["window"] = "window"
    size: PositiveInt
    """How many keys a causal query sees at most, its own included: w."""

    @classmethod
    def example(cls) -> Self:
        return cls(size=3)

    def restrict(self, mask: Tensor, distance: Tensor) -> Tensor:
        return mask & (distance.abs() < self.size)

    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        return seen[i][j] and abs(i - j) < self.size
