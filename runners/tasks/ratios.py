"""Sums over items that are divided by sums over items: nats per token where items have unlike numbers of tokens.

    r = sum x / sum n,     se(r)^2 = m / (m - 1)  sum (x - r n)^2 / (sum n)^2        over m items (delta method)

With equal n that is the mean of x / n and its standard error.
"""

import math
from typing import NamedTuple

from torch import Tensor

from runners.tasks.task import Measurements


class Ratio(NamedTuple):
    """A ratio with its standard error, None for one item."""

    value: float
    se: float | None
    items: int

    def times(self, factor: float) -> "Ratio":
        """In another unit."""
        return Ratio(self.value * factor, None if self.se is None else self.se * factor, self.items)

    def exponential(self) -> "Ratio":
        """e^r, infinite where that is beyond a float."""
        try:
            value = math.exp(self.value)
        except OverflowError:
            value = math.inf
        return Ratio(value, None if self.se is None else self.se * value, self.items)

    def measured(self, name: str) -> Measurements:
        """As a row."""
        return Measurements(name, self.value, {}, self.items, self.se)


def ratio(x: Tensor, n: Tensor) -> Ratio:
    """`x` and `n`, float64 [items]; NaN where all n are 0."""
    items, total = len(x), float(n.sum())
    if total == 0:
        return Ratio(math.nan, None, items)
    value = float(x.sum()) / total
    if items == 1:
        return Ratio(value, None, items)
    spread = float((x - value * n).square().sum()) * items / (items - 1)
    return Ratio(value, math.sqrt(spread) / total, items)
