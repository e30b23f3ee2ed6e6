"""Ratios of sums over items, such as nats per token if items differ in their number of tokens.

    r = sum x / sum n,     se(r)^2 = m / (m - 1)  sum (x - r n)^2 / (sum n)^2        over m items (delta method)

With equal n, r is the mean of x / n with its standard error.
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
        """Convert to another unit."""
        return Ratio(self.value * factor, None if self.se is None else self.se * factor, self.items)

    def exponential(self) -> "Ratio":
        """Compute e^r, infinite if it overflows."""
        try:
            value = math.exp(self.value)
        except OverflowError:
            value = math.inf
        return Ratio(value, None if self.se is None else self.se * value, self.items)

    def to_measurement(self, name: str) -> Measurements:
        """Return the ratio as a measurement."""
        return Measurements(name, self.value, {}, self.items, self.se)


def ratio(x: Tensor, n: Tensor) -> Ratio:
    """Compute the ratio of `x` and `n`, float64 [items]; NaN if all n are 0."""
    items, total = len(x), float(n.sum())
    if total == 0:
        return Ratio(math.nan, None, items)
    value = float(x.sum()) / total
    if items == 1:
        return Ratio(value, None, items)
    spread = float((x - value * n).square().sum()) * items / (items - 1)
    return Ratio(value, math.sqrt(spread) / total, items)
