"""The two parts of a comparison: exact tests against brute force, the rule, its words, and its false claims."""

import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

from ablate.store.statistics.paired_differences import Paired, summarise
from ablate.store.statistics.two_part import Learners, boschloo_p, decide_parts, exact_interval, two_part

Floats = NDArray[np.float64]


def table(learned: list[list[float]], values: Floats, **columns: str) -> pl.DataFrame:
    """Runs of the cells c0, c1, ...; `learned` is NaN where nothing has ended."""
    rows = [
        (f"c{cell}", f"c{cell}", "o", seed, None if math.isnan(known) else float(values[cell, seed]), known)
        for cell, of in enumerate(learned)
        for seed, known in enumerate(of)
    ]
    frame = pl.DataFrame(rows, schema=["cell", "label", "operator", "seed", "value", "learned"], orient="row")
    ended = pl.when(pl.col("value").is_null()).then(pl.lit("pending")).otherwise(pl.lit("done"))
    return frame.with_columns(pl.col("learned").fill_nan(None), state=ended, **columns)


def judged(learned: list[list[float]], values: Floats) -> dict[str, object]:
    found = two_part(table(learned, values), baseline="c0", scale="linear", better="higher", rope=0.0)
    return found.row(0, named=True)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 4), (8, 8)])
def test_shares_are_tested_as_by_brute_force(n: int, m: int) -> None:
    p = np.linspace(0, 1, 2001)
    tables = list(product(range(n + 1), range(m + 1)))
    chance = {(j, k): stats.binom.pmf(j, n, p) * stats.binom.pmf(k, m, p) for j, k in tables}
    sides = []
    for other in ("greater", "less"):
        fisher = {(j, k): stats.fisher_exact([[j, k], [n - j, m - k]], alternative=other).pvalue for j, k in tables}
        sides.append(
            {at: sum(chance[each] for each in tables if fisher[each] <= fisher[at] * (1 + 1e-9)).max() for at in tables}
        )
    for at in tables:
        expected = min(1.0, 2 * min(side[at] for side in sides))
        assert boschloo_p(Learners(at[0], n, at[1], m)) == pytest.approx(expected, rel=2e-3)


def test_intervals_of_shares_are_those_of_scipy() -> None:
    for k, n in ((0, 3), (3, 3), (4, 5), (1, 12)):
        known = stats.binomtest(k, n).proportion_ci(0.95, "exact")
        assert exact_interval(k, n) == pytest.approx((known.low, known.high))
    assert np.isnan(exact_interval(0, 0)).all()


def test_the_part_that_differs_is_named() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, (2, 8))
    often = judged([[0] * 7 + [1], [1] * 8], noise)
    assert (often["verdict"], often["learned"], often["baseline_learned"], often["pairs"]) == ("better", 8, 1, 1)
    assert often["share_p_holm"] == pytest.approx(boschloo_p(Learners(8, 8, 1, 8)))
    assert often["p"] is None
    shift = np.array([[0.0], [-1.0]])
    well = judged([[1] * 8, [1] * 7 + [0]], noise + shift)
    assert (well["verdict"], well["pairs"]) == ("worse", 7)
    both = [[1] * 3 + [0] * 9, [1] * 12]
    assert judged(both, np.random.default_rng(1).normal(0, 0.01, (2, 12)) + shift)["verdict"] == "trade-off"
    assert judged([[0] * 5, [0] * 5], noise)["verdict"] == "no verdict"
    assert judged([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]], noise)["verdict"] == "undecided"


def test_every_run_learned_gives_values_all_of_alpha() -> None:
    values = Paired(*(np.array([each]) for each in (5.0, 1.0, 1.0)))
    error = stats.t.isf(0.035 / 2, 4) / np.sqrt(5)  # p is 0.035, between alpha / 2 and alpha
    values = values._replace(mean=np.array([error]))
    claims = [
        decide_parts([Learners(k, 5, 5, 5)], values, rope=0.0, alpha=0.05, better="higher").value[0] for k in (5, 4)
    ]
    assert claims == [1, 0]


def test_an_unfair_comparison_has_no_verdict_and_others_have() -> None:
    noise = np.random.default_rng(2).normal(0, 0.01, (3, 8))
    frame = table([[0] * 8, [1] * 8, [1] * 8], noise)
    failed = pl.when((pl.col("cell") == "c1") & (pl.col("seed") == 3))
    frame = frame.with_columns(
        state=failed.then(pl.lit("failed")).otherwise("state"),
        value=failed.then(None).otherwise("value"),
        learned=failed.then(None).otherwise("learned"),
    )
    found = two_part(frame, baseline="c0", scale="linear", better="higher", rope=0.0)
    assert found["verdict"].to_list() == ["no verdict", "better"]
    assert found["share_p"].null_count() == 1


def test_runs_that_have_not_ended_are_not_counted() -> None:
    nan = math.nan
    found = judged([[1, 1, 1, 0, nan], [1, 1, 1, 1, nan]], np.random.default_rng(3).normal(size=(2, 5)))
    assert (found["learned"], found["runs"], found["baseline_learned"], found["baseline_runs"]) == (4, 4, 3, 4)


@pytest.mark.parametrize(("q", "m", "n"), [(0.5, 5, 5), (0.78, 5, 8), (0.97, 20, 3)])
def test_equal_shares_and_values_are_rarely_claimed_to_differ(q: float, m: int, n: int) -> None:
    rng, tables, false = np.random.default_rng([m, n]), 200, 0
    for _ in range(tables):
        learned, values = rng.random((m + 1, n)) < q, rng.normal(size=(m + 1, n))
        both = [learned[0] & each for each in learned[1:]]
        parts = [summarise((values[i + 1] - values[0])[each]) for i, each in enumerate(both)]
        learners = [Learners(int(each.sum()), n, int(learned[0].sum()), n) for each in learned[1:]]
        pairs = Paired(*(np.array(part, dtype=np.float64) for part in zip(*parts, strict=True)))
        found = decide_parts(learners, pairs, rope=0.0, alpha=0.05, better="lower")
        false += bool(found.share.any() or found.value.any())
    assert false <= stats.binom.ppf(0.9999, tables, 0.05)


def test_a_difference_that_is_not_shown_beyond_the_band_has_its_word() -> None:
    noise = np.random.default_rng(2).normal(0, 0.02, (2, 8)) + np.array([[0.0], [0.1]])
    learned = [[1] * 7 + [0], [1] * 8]
    found = two_part(table(learned, noise), baseline="c0", scale="linear", better="higher", rope=0.09)
    assert (found["verdict"].item(), found["p_holm"].item() < 0.025) == ("real, size unproven", True)
