"""Links: from the real line, where training moves a number, to the range its operator accepts."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Range(NamedTuple):
    """A range and the way to it."""

    value: Callable[[Tensor], Tensor]
    inverse: Callable[[float], float]
    low: float
    high: float
    closed: bool
    """Whether a fixed number may lie on the border; a trained one only approaches it."""
    version: int = 1
    """Version of the numbers that the link computes; raise it when an edit changes them. Results store it."""

    def holds(self, value: float, *, trained: bool) -> bool:
        return self.low < value < self.high or (self.closed and not trained and value in (self.low, self.high))

    def words(self, *, trained: bool) -> str:
        border = "[]" if self.closed and not trained else "()"
        return f"{border[0]}{self.low:g}, {self.high:g}{border[1]}"


Link = Literal["identity", "positive", "at_least_one", "unit", "clipped"]

LINKS: dict[Link, Range] = {
    "identity": Range(lambda raw: raw, lambda value: value, -math.inf, math.inf, closed=False),
    "positive": Range(torch.exp, math.log, 0, math.inf, closed=False),
    "at_least_one": Range(
        lambda raw: 1 + F.softplus(raw),
        lambda value: value - 1 + math.log(-math.expm1(-(value - 1))),  # the inverse of softplus
        1,
        math.inf,
        closed=True,
    ),
    "unit": Range(torch.sigmoid, lambda value: math.log(value / (1 - value)), 0, 1, closed=True),
    "clipped": Range(
        lambda raw: (0.1 * raw + 0.5).clamp(0, 1), lambda value: (value - 0.5) / 0.1, 0, 1, closed=True
    ),  # linear clipping of Affine-Scaled Attention: slope 0.1, no gradient once it has reached a border
}
