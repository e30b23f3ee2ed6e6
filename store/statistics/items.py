"""Two error bars: the sampling of test items and the spread of seeds, apart and together.

Two arms that were judged by the same items give a difference per seed and item. Averaged over items it is one number
per seed (the error bar over seeds); averaged over seeds, one per item (the error bar over items, which clusters what
one item says in all seeds). The error for new seeds and new items at once adds both variances and takes away what they
share (two-way clustering: Cameron, Gelbach and Miller 2011).
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from store.statistics.paired import Floats


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
    """For other seeds and other items."""
    interval_seeds: tuple[float, float]
    interval_items: tuple[float, float]
    interval_both: tuple[float, float]


def item_bars(differences: Floats, alpha: float = 0.05) -> ItemBars:
    """`differences` [seeds, items] of the values of items, cell minus baseline, each pair of one seed and one item."""
    seeds, items = differences.shape
    mean = float(differences.mean()) if differences.size else np.nan
    by_seed, by_item = _error(differences.mean(1)), _error(differences.mean(0))
    alone = _alone(differences)
    both = float(np.sqrt(max(by_seed**2 + by_item**2 - alone**2, by_seed**2, by_item**2)))
    return ItemBars(
        mean, seeds, items, by_seed, by_item, both,
        _interval(mean, by_seed, seeds - 1, alpha),
        _interval(mean, by_item, items - 1, alpha),
        _interval(mean, both, _freedom(by_seed, by_item, seeds, items), alpha),
    )  # fmt: skip


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def _alone(differences: Floats) -> float:
    """Standard error from what neither the seed nor the item explains, which the two bars both contain."""
    seeds, items = differences.shape
    if seeds < 2 or items < 2:
        return np.nan
    rest = differences - differences.mean(1, keepdims=True) - differences.mean(0) + differences.mean()
    return float(np.sqrt((rest**2).sum() / ((seeds - 1) * (items - 1)) / differences.size))


def _freedom(by_seed: float, by_item: float, seeds: int, items: int) -> float:
    """Of the sum of two variances (Satterthwaite 1946)."""
    total = by_seed**2 + by_item**2
    if seeds < 2 or items < 2 or not total:
        return np.nan
    return float(total**2 / (by_seed**4 / (seeds - 1) + by_item**4 / (items - 1)))


def _interval(mean: float, error: float, freedom: float, alpha: float) -> tuple[float, float]:
    half = float(special.stdtrit(freedom, 1 - alpha / 2)) * error if freedom > 0 else np.nan
    return mean - half, mean + half
