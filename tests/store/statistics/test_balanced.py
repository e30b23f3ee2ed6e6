"""Means over settings: each counts alike whatever is missing, and the interval is one over seeds."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics import balanced_means


def frame(values: np.ndarray, group: str = "g") -> pl.DataFrame:
    """`values` [settings, seeds]; NaN is a run that is not there."""
    rows = [
        (group, str(s), seed, float(x)) for s, row in enumerate(values) for seed, x in enumerate(row) if not np.isnan(x)
    ]
    return pl.DataFrame(rows, schema=["group", "setting", "seed", "units"], orient="row")


def test_with_no_run_missing_it_is_the_t_interval_of_the_seeds_means() -> None:
    values = np.random.default_rng(0).normal(size=(3, 5))
    row = balanced_means(frame(values), ["group"], alpha=0.1).row(0, named=True)
    by_seed = values.mean(0)
    half = stats.t.ppf(0.95, 4) * by_seed.std(ddof=1) / np.sqrt(5)
    assert (row["mean"], row["high"] - row["mean"], row["mean"] - row["low"]) == pytest.approx(
        (by_seed.mean(), half, half)
    )
    assert (row["n"], row["runs"]) == (5, 15)


def test_a_setting_that_lost_runs_counts_as_much_as_the_others() -> None:
    lost = np.array([[1.0, 1.2, 1.1, 0.9], [9.0, 9.1, np.nan, np.nan]])
    found = balanced_means(pl.concat([frame(lost), frame(lost[:, :1], "one")]), ["group"]).sort("group")
    row, one = found.rows(named=True)
    assert row["mean"] == pytest.approx((lost[0].mean() + 9.05) / 2)
    assert (row["n"], row["runs"]) == (2, 6)
    assert row["low"] < row["mean"] < row["high"]
    assert (one["mean"], one["low"], one["high"], one["n"]) == (5.0, None, None, 1)


def test_intervals_hold_what_they_promise_where_runs_are_missing() -> None:
    rng, settings, seeds, groups = np.random.default_rng(1), np.array([[0.0], [3.0], [-1.0]]), 5, 600
    frames = []
    for group in range(groups):
        values = settings + rng.normal(size=(1, seeds)) + rng.normal(size=(3, seeds))
        values.flat[rng.choice(15, 3, replace=False)] = np.nan
        frames.append(frame(values, str(group)))
    found = balanced_means(pl.concat(frames), ["group"]).filter(pl.col("n") > 1)
    held = found.filter((pl.col("low") <= 2 / 3) & (pl.col("high") >= 2 / 3)).height / found.height
    assert found.height > 0.9 * groups
    assert 0.94 <= held <= 0.999
