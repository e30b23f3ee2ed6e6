"""Error bars over seeds and test items, and means over settings that each count alike."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from ablate.store.statistics.paired_differences import Floats, Paired, t_interval

SETTING: Final = "setting"

_FEWEST: Final = 3  # seeds for a joint bar: with two, it would cover the truth in 88 %


class ItemBars(NamedTuple):
    """Mean paired difference with three standard errors and t intervals; NaN where one cannot be known."""

    difference: float
    seeds: int
    items: int
    se_seeds: float  # over seeds, these items being all there are; unknown with one seed
    se_items: float  # over items, these seeds being all there are: with one seed, the only bar, which ignores seeds
    se_both: float  # for other seeds and other items; unknown with fewer than three seeds or items
    interval_seeds: tuple[float, float]
    interval_items: tuple[float, float]
    interval_both: tuple[float, float]


def item_bars(differences: Floats, alpha: float = 0.05) -> ItemBars:
    """`differences` [seeds, items] of the values of items, cell minus baseline, each pair of one seed and one item.

    The error for new seeds and new items adds both variances and subtracts their shared part (two-way clustering:
    Cameron, Gelbach and Miller 2011), with Satterthwaite's degrees of freedom.
    """
    seeds, items = differences.shape
    mean = float(differences.mean()) if differences.size else np.nan
    by_seed, by_item = _error(differences.mean(1)), _error(differences.mean(0))
    both, freedom = _joint(differences, by_seed, by_item)
    intervals = []
    for error, of in ((by_seed, seeds - 1), (by_item, items - 1), (both, freedom)):
        half = float(special.stdtrit(of, 1 - alpha / 2)) * error if of > 0 else np.nan
        intervals.append((mean - half, mean + half))
    return ItemBars(mean, seeds, items, by_seed, by_item, both, *intervals)


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def _joint(differences: Floats, by_seed: float, by_item: float) -> tuple[float, float]:
    """Standard error and degrees of freedom; both bars contain the unexplained variance, so it is subtracted once."""
    seeds, items = differences.shape
    if min(seeds, items) < _FEWEST:
        return np.nan, np.nan
    rest = differences - differences.mean(1, keepdims=True) - differences.mean(0) + differences.mean()
    alone = float((rest**2).sum() / ((seeds - 1) * (items - 1)) / differences.size)
    variance = max(by_seed**2 + by_item**2 - alone, by_seed**2, by_item**2)
    parts = by_seed**4 / (seeds - 1) + by_item**4 / (items - 1) + alone**2 / ((seeds - 1) * (items - 1))
    return float(np.sqrt(variance)), variance**2 / parts if parts > 0 else np.nan


def balanced_means(values: pl.DataFrame, keys: Sequence[str], *, alpha: float = 0.05) -> pl.DataFrame:
    """Means over settings with equal weight, also if some runs are missing: one row per group of `keys`.

    `values` has the columns `keys`, "setting", "seed", and "units" (on the analysis scale, without nulls). Runs of one
    seed are a cluster. If no run is missing, the variance is the squared standard error of the seeds' means. Otherwise
    it is the cluster-robust variance with residuals scaled as in HC2 (Bell and McCaffrey 2002). `low` and `high` are
    the t interval over seeds, null if a setting has one seed. `n` is the fewest seeds of a setting.
    """
    each = [*keys, SETTING]
    units, n = pl.col("units"), pl.len().over(each)
    parts = values.with_columns(
        of_setting=units.mean().over(each),
        share=1 / (pl.col(SETTING).n_unique().over(keys) * n),
        scale=pl.when(n > 1).then((n / (n - 1)).sqrt()),
        n=n,
    )
    moved = (pl.col("share") * pl.col("scale") * (units - pl.col("of_setting"))).sum()
    by_seed = parts.group_by(*keys, "seed").agg(moved=moved)
    errors = by_seed.group_by(keys).agg((pl.col("moved") ** 2).sum().sqrt().alias("error"))
    means = parts.group_by(keys).agg(
        mean=(units * pl.col("share")).sum(), n=pl.col("n").min().cast(pl.Int64), runs=pl.len().cast(pl.Int64)
    )
    frame = means.join(errors, on=list(keys))
    seeds = frame["n"].cast(pl.Float64).to_numpy()
    low, high = t_interval(Paired(seeds, frame["mean"].to_numpy(), frame["error"].to_numpy() * seeds**0.5), alpha)
    ends = [pl.Series(name, end).fill_nan(None) for name, end in (("low", low), ("high", high))]
    return frame.with_columns(ends).select(*keys, "mean", "low", "high", "n", "runs")
