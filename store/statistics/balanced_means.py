"""Means over settings, each setting with equal weight, also if some of its runs are missing.

A plain mean over runs shifts towards the settings that lost none. Here the mean of a group is the mean of the means of
its settings. Runs of one seed are a cluster. If no run is missing, the variance is the squared standard error of the
seeds' means. Otherwise it is the cluster-robust variance with residuals scaled as in HC2 (Bell and McCaffrey 2002).
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from store.statistics.paired_differences import Paired, t_interval

SETTING: Final = "setting"
"""The column with the setting of a run."""


def balanced_means(values: pl.DataFrame, keys: Sequence[str], *, alpha: float = 0.05) -> pl.DataFrame:
    """One row per group of `keys`: keys, mean, low, high, n, runs.

    Args:
        values: the columns `keys`, "setting", "seed", and "units" (on the analysis scale, without nulls).
        keys: what tells groups apart.
        alpha: one less the level of the t interval.

    Returns:
        mean over settings of their means over seeds; low, high: its t interval over seeds, null where a setting has
        one seed; n: seeds of the setting with the fewest, on which the interval's degrees of freedom rest; runs.
    """
    each = [*keys, SETTING]
    units, n = pl.col("units"), pl.len().over(each)
    settings = pl.col(SETTING).n_unique().over(keys)
    parts = values.with_columns(
        of_setting=units.mean().over(each),
        share=1 / (settings * n),
        scale=pl.when(n > 1).then((n / (n - 1)).sqrt()),
        n=n,
    )
    by_seed = parts.group_by(*keys, "seed").agg(
        moved=(pl.col("share") * pl.col("scale") * (units - pl.col("of_setting"))).sum()
    )
    errors = by_seed.group_by(keys).agg((pl.col("moved") ** 2).sum().sqrt().alias("error"))
    means = parts.group_by(keys).agg(
        mean=(units * pl.col("share")).sum(),
        n=pl.col("n").min().cast(pl.Int64),
        runs=pl.len().cast(pl.Int64),
    )
    found = means.join(errors, on=list(keys))
    seeds, mean = found["n"].cast(pl.Float64).to_numpy(), found["mean"].to_numpy()
    low, high = t_interval(Paired(seeds, mean, found["error"].to_numpy() * seeds**0.5), alpha)
    ends = [pl.Series(name, end).fill_nan(None) for name, end in (("low", low), ("high", high))]
    return found.with_columns(ends).select(*keys, "mean", "low", "high", "n", "runs")
