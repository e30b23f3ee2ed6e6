"""The detectors of noise that verdicts do not cover: laws, brute force, and their rates under noise that is known."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

from ablate.store.statistics.noise import NoiseShape, detect, examine, long_tail, seed_share, split

Floats = NDArray[np.float64]
SHAPES = [(1, 5), (5, 3), (20, 12)]


def frame(table: Floats, first_seed: int = 0) -> pl.DataFrame:
    """Runs of the cells c0, c1, ...; NaN is a run that has not finished."""
    rows = [
        (f"c{cell}", "softmax", "softmax", first_seed + seed, value if np.isfinite(value) else None, value)
        for (cell, seed), value in np.ndenumerate(table)
    ]
    columns = ["cell", "label", "operator", "seed", "value", "known"]
    found = pl.DataFrame(rows, schema=columns, orient="row")
    return found.with_columns(
        state=pl.when(pl.col("value").is_null()).then(pl.lit("pending")).otherwise(pl.lit("done"))
    )


def by_hand(table: Floats, *, tail: bool = False, all_learned: bool = False) -> NoiseShape:
    return examine(table, np.arange(len(table)) == 0, long_tail=tail, all_learned=all_learned)


def two_groups(rng: np.random.Generator, cells: int, seeds: int, share: float = 0.5) -> Floats:
    return (rng.random((cells, seeds)) < share) + rng.normal(0, 0.02, (cells, seeds))


@pytest.mark.parametrize(("variants", "seeds"), SHAPES)
def test_two_groups_are_found_with_their_counts(variants: int, seeds: int) -> None:
    rng = np.random.default_rng(variants)
    tables = [two_groups(rng, variants + 1, seeds) for _ in range(40)]
    found = [by_hand(table) for table in tables]
    fired = [(each, table) for each, table in zip(found, tables, strict=True) if "split" in each.fired]
    assert len(fired) >= 36
    for each, table in fired:
        assert 0.1 < each.between < 0.9
        assert each.above == (table > 0.5).sum()
        assert (each.runs, each.cells, each.fewest) == (table.size, len(table), seeds)


def test_unequal_spread_is_no_split_where_all_runs_are_known_to_have_learned() -> None:
    """A cell with nearly all of the spread has the shares of a table of six runs; groups in every cell stay a split."""
    rng = np.random.default_rng(5)
    tables = [rng.normal(size=(5, 6)) * np.array([[1.0], *4 * [[0.03]]]) for _ in range(40)]
    fired = [sum("split" in by_hand(each, all_learned=known).fired for each in tables) for known in (False, True)]
    assert fired[0] >= 6
    assert fired[1] <= 2
    groups = [two_groups(rng, 5, 6) for _ in range(10)]
    assert all("split" in by_hand(each, all_learned=True).fired for each in groups)


@pytest.mark.parametrize("share", [0.0, 0.8])
@pytest.mark.parametrize(("variants", "seeds"), SHAPES)
def test_normal_noise_rarely_fires(variants: int, seeds: int, share: float) -> None:
    rng = np.random.default_rng([variants, seeds])
    tables, shape = 150, (variants + 1, seeds)
    normal = [
        np.sqrt(share) * rng.normal(size=(1, seeds)) + np.sqrt(1 - share) * rng.normal(size=shape)
        for _ in range(tables)
    ]
    fired = sum(bool(by_hand(each, tail=True).fired) for each in normal)
    assert fired <= stats.binom.ppf(0.9999, tables, 0.04)


def test_a_lognormal_table_has_a_long_tail_on_a_linear_scale_only() -> None:
    table = np.exp(np.random.default_rng(3).normal(size=(6, 5)))
    assert "tail" in detect(frame(table), baseline="c0", scale="linear").fired
    assert "tail" not in detect(frame(table), baseline="c0", scale="log").fired


def test_skew_with_unequal_spread_fires_without_a_log_scale() -> None:
    rng = np.random.default_rng(4)
    table = np.array([[1.0], *[[4.0]] * 20]) * (np.exp(rng.normal(size=(21, 8))) - np.exp(0.5))
    assert "skew" in by_hand(table - 20).fired
    assert "skew" not in by_hand(np.array([[1.0], *[[4.0]] * 20]) * rng.normal(size=(21, 8))).fired


def test_shift_scale_and_order_change_no_finding() -> None:
    rng = np.random.default_rng(5)
    table = rng.normal(size=(6, 7))
    table[2, 5:] = np.nan
    found = by_hand(table)
    moved = detect(frame(3 + 100 * table[[0, 4, 2, 1, 5, 3]], first_seed=9), baseline="c0", scale="linear")
    for name in ("split", "skew", "spread"):
        assert getattr(moved, name).value == pytest.approx(getattr(found, name).value)
        assert getattr(moved, name).limit == pytest.approx(getattr(found, name).limit)
    assert moved.between == pytest.approx(3 + 100 * found.between)
    assert moved.above == found.above
    assert by_hand(table) == found


def test_split_equals_brute_force() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        table = rng.standard_t(3, size=(4, 6))
        table[1, 3:] = np.nan
        cells = [sorted(row[np.isfinite(row)]) for row in table]
        gaps = sorted((b - a, (a + b) / 2) for cell in cells for a, b in pairwise(cell))[-4:]

        def squares(*groups: list[float]) -> float:
            return sum(float(np.var(group)) * len(group) for group in groups if group)

        def left(cut: float, cells: list[list[float]] = cells) -> float:
            return sum(squares([x for x in cell if x > cut], [x for x in cell if x <= cut]) for cell in cells)

        found, cuts = split(table[None])
        assert list(cuts[0]) == pytest.approx([cut for _, cut in reversed(gaps)])
        assert list(found[0]) == pytest.approx([1 - left(cut) / squares(*cells) for cut in cuts[0]])


def test_long_tail_equals_the_likelihoods_of_scipy() -> None:
    table = np.random.default_rng(7).uniform(1, 9, size=(3, 5))
    normal = sum(stats.norm.logpdf(row, row.mean(), row.std()).sum() for row in table)
    logs = np.log(table)
    lognormal = sum(
        stats.lognorm.logpdf(row, log.std(), scale=np.exp(log.mean())).sum()
        for row, log in zip(table, logs, strict=True)
    )
    assert long_tail(table[None])[0] == pytest.approx(lognormal - normal)
    assert long_tail(-table[None])[0] == -np.inf


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_the_share_of_seeds_is_estimated(share: float) -> None:
    rng = np.random.default_rng(8)
    made = np.sqrt(share) * rng.normal(size=(1, 4000)) + np.sqrt(1 - share) * rng.normal(size=(5, 4000))
    made[1, :1000] = np.nan
    assert seed_share(made) == pytest.approx(share, abs=4 / np.sqrt(4000))


def test_cells_that_cannot_be_examined_are_left_out() -> None:
    table = np.random.default_rng(9).uniform(1, 2, size=(5, 4))
    table[1, 2:] = np.nan  # two runs
    table[2] = 1.0  # no noise
    table[3, 0] = -1.0  # no logarithm
    assert detect(frame(table), baseline="c0", scale="log").cells == 2
    assert detect(frame(table[:1]), baseline="c0", scale="log").fired == ()
    assert detect(frame(np.ones((3, 3))), baseline="c0", scale="linear").runs == 0
