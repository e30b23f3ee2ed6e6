"""Error bars over items, over seeds and over both, and means over settings: each counts alike whatever is missing."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics import balanced_means
from ablate.store.statistics.error_bars import item_bars


def crossed(reps: int, seeds: int, items: int, *, sd_seed: float, sd_item: float) -> np.ndarray:
    """Differences [reps, seeds, items] about zero: a part of the seed, a part of the item, the rest 1."""
    rng = np.random.default_rng([seeds, items])
    of_seed, of_item = rng.normal(0, sd_seed, (reps, seeds, 1)), rng.normal(0, sd_item, (reps, 1, items))
    return of_seed + of_item + rng.normal(size=(reps, seeds, items))


def test_each_bar_is_the_t_interval_of_its_averages() -> None:
    differences = crossed(1, 4, 30, sd_seed=0.3, sd_item=1.0)[0]
    found = item_bars(differences)
    seeds, items = stats.ttest_1samp(differences.mean(1), 0), stats.ttest_1samp(differences.mean(0), 0)
    assert found.interval_seeds == pytest.approx(tuple(seeds.confidence_interval(0.95)))
    assert found.interval_items == pytest.approx(tuple(items.confidence_interval(0.95)))
    assert (found.seeds, found.items, found.difference) == (4, 30, pytest.approx(differences.mean()))
    assert found.se_both >= max(found.se_seeds, found.se_items)


def test_one_seed_has_a_bar_over_items_only() -> None:
    differences = crossed(1, 1, 30, sd_seed=0.3, sd_item=1.0)[0]
    found = item_bars(differences)
    assert found.se_items == pytest.approx(stats.sem(differences[0]))
    assert np.isnan([found.se_seeds, found.se_both, *found.interval_both]).all()


@pytest.mark.parametrize(("seeds", "items"), [(2, 40), (40, 2)])
def test_two_seeds_or_two_items_have_no_joint_bar(seeds: int, items: int) -> None:
    """With two seeds it would cover the truth in 88 %."""
    found = item_bars(crossed(1, seeds, items, sd_seed=0.3, sd_item=1.0)[0])
    assert np.isnan([found.se_both, *found.interval_both]).all()
    assert found.se_seeds > 0
    assert found.se_items > 0


@pytest.mark.parametrize(("sd_seed", "sd_item"), [(0.5, 2.0), (0.0, 2.0), (0.5, 0.0), (0.2, 1.0)])
@pytest.mark.parametrize(("seeds", "items"), [(3, 20)])
def test_the_joint_interval_covers_where_each_bar_alone_does_not(
    seeds: int, items: int, sd_seed: float, sd_item: float
) -> None:
    """For other seeds and other items: at least nearly as often as it says, whichever of the two is noisier."""
    reps = 2000
    covers = np.zeros((reps, 3), dtype=bool)
    for at, differences in enumerate(crossed(reps, seeds, items, sd_seed=sd_seed, sd_item=sd_item)):
        found = item_bars(differences)
        bars = (found.interval_seeds, found.interval_items, found.interval_both)
        covers[at] = [low <= 0 <= high for low, high in bars]
    by_seeds, by_items, both = covers.mean(0)
    assert both > 0.935
    if sd_seed == 0.5 and sd_item == 2.0:
        assert by_seeds < both - 0.02
        assert by_items < both - 0.02


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
