"""Standard errors over seeds, over test items, and over both.

Two arms evaluated on the same items give one difference per seed and item. The mean over items gives one number per
seed, and so the error over seeds. The mean over seeds gives one number per item, and so the error over items. The error
for new seeds and new items adds both variances and subtracts their shared part (two-way clustering: Cameron, Gelbach
and Miller 2011).
"""

from typing import Final, NamedTuple

import numpy as np
from scipy import special

from store.statistics.paired_differences import Floats

_FEWEST: Final = 3
"""Seeds for a joint bar: with two, it would cover the truth in 88 %."""


class ItemBars(NamedTuple):
    """Mean paired difference with three standard errors and t intervals; NaN where one cannot be known."""

    difference: float
    seeds: int
    items: int
    se_seeds: float
    """Over seeds, these items being all there are; unknown with one seed."""
    se_items: float
    """Over items, these seeds being all there are: with one seed, the only bar, which ignores seeds."""
    se_both: float
    """For other seeds and other items; unknown with fewer than three seeds or items."""
    interval_seeds: tuple[float, float]
    interval_items: tuple[float, float]
    interval_both: tuple[float, float]


def item_bars(differences: Floats, alpha: float = 0.05) -> ItemBars:
    """`differences` [seeds, items] of the values of items, cell minus baseline, each pair of one seed and one item."""
    seeds, items = differences.shape
    mean = float(differences.mean()) if differences.size else np.nan
    by_seed, by_item = _error(differences.mean(1)), _error(differences.mean(0))
    both, freedom = _joint(differences, by_seed, by_item)
    return ItemBars(
        mean, seeds, items, by_seed, by_item, both,
        _interval(mean, by_seed, seeds - 1, alpha),
        _interval(mean, by_item, items - 1, alpha),
        _interval(mean, both, freedom, alpha),
    )  # fmt: skip


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def _joint(differences: Floats, by_seed: float, by_item: float) -> tuple[float, float]:
    """Standard error for other seeds and items, and its degrees of freedom (Satterthwaite 1946).

    Both bars contain the variance that neither seed nor item explains, so it is subtracted once.
    """
    seeds, items = differences.shape
    if min(seeds, items) < _FEWEST:
        return np.nan, np.nan
    rest = differences - differences.mean(1, keepdims=True) - differences.mean(0) + differences.mean()
    alone = float((rest**2).sum() / ((seeds - 1) * (items - 1)) / differences.size)
    variance = max(by_seed**2 + by_item**2 - alone, by_seed**2, by_item**2)
    parts = by_seed**4 / (seeds - 1) + by_item**4 / (items - 1) + alone**2 / ((seeds - 1) * (items - 1))
    return float(np.sqrt(variance)), variance**2 / parts if parts > 0 else np.nan


def _interval(mean: float, error: float, freedom: float, alpha: float) -> tuple[float, float]:
    half = float(special.stdtrit(freedom, 1 - alpha / 2)) * error if freedom > 0 else np.nan
    return mean - half, mean + half
