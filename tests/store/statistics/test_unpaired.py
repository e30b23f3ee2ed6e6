"""Seeds that the arms do not share: Welch's test, when it is used, and what it promises."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics import compare, decide, p_zero, summarise, t_interval
from ablate.store.statistics.paired_differences import Paired, hedges_g, superiority, welch

RULES = {"baseline": "a", "scale": "linear", "better": "lower", "rope": 0.1}


def frame(**arms: dict[int, float | None]) -> pl.DataFrame:
    rows = [
        {"cell": name, "label": name, "operator": name, "seed": seed, "value": value}
        for name, runs in arms.items()
        for seed, value in runs.items()
    ]
    state = pl.when(pl.col("value").is_null()).then(pl.lit("pending")).otherwise(pl.lit("done"))
    return pl.DataFrame(rows).with_columns(state=state)


def runs(first: int, *values: float | None) -> dict[int, float | None]:
    return dict(enumerate(values, first))


def only(values: pl.DataFrame) -> dict:
    return compare(values, **RULES).row(0, named=True)


A, B = (1.0, 1.4, 0.9, 1.2), (2.1, 2.0, 2.6)


@pytest.mark.parametrize("sizes", [(3, 3), (3, 9), (8, 4)])
def test_it_is_the_test_of_scipy(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sizes[0])
    ours, theirs = rng.normal(1, 3, sizes[0]), rng.normal(0, 1, sizes[1])
    oracle = stats.ttest_ind(ours, theirs, equal_var=False)
    found = welch(ours, theirs)
    assert p_zero(found) == pytest.approx(oracle.pvalue)
    assert t_interval(found) == pytest.approx(tuple(oracle.confidence_interval(0.95)))
    assert superiority((ours[:, None] - theirs).ravel(), better="higher") == pytest.approx(
        stats.mannwhitneyu(ours, theirs).statistic / ours.size / theirs.size
    )


def test_arms_without_a_shared_seed_are_judged_by_all_their_runs() -> None:
    row = only(frame(a=runs(0, *A), b=runs(10, *B)))
    assert (row["method"], row["pairs"], row["planned"], row["runs"], row["baseline_runs"]) == ("Welch", 0, 0, 3, 4)
    assert row["p"] == pytest.approx(stats.ttest_ind(B, A, equal_var=False).pvalue)
    assert (row["verdict"], row["superiority"], row["sign_flip_p"], row["pairing"]) == ("worse", 0.0, None, None)
    effect = Paired(np.float64(stats.ttest_ind(B, A, equal_var=False).df + 1), np.float64(row["difference"]),
                    np.float64(np.sqrt(np.var(A, ddof=1) + np.var(B, ddof=1))))  # fmt: skip
    assert row["hedges_g"] == pytest.approx(float(hedges_g(effect)))


def test_three_pairs_are_paired_whatever_else_has_run_and_two_are_not() -> None:
    missing = frame(a=runs(0, 1.0, 1.4, 0.9, 1.2, 1.1), b=runs(0, 2.0, 2.5, 1.8, None, 2.2))
    row = only(missing)
    assert (row["method"], row["pairs"], row["runs"]) == ("paired t", 4, 4)
    assert row["p"] == pytest.approx(stats.ttest_rel([2.0, 2.5, 1.8, 2.2], [1.0, 1.4, 0.9, 1.1]).pvalue)
    row = only(frame(a=runs(0, *A), b=runs(2, *B)))
    assert (row["method"], row["pairs"], row["planned"], row["runs"], row["baseline_runs"]) == ("Welch", 2, 2, 3, 4)
    assert row["verdict"] == "worse"


def test_runs_on_seeds_of_one_arm_only_are_left_out_and_counted() -> None:
    row = only(frame(a=runs(0, *A), b=runs(0, 2.1, 2.0, 2.6, 2.2, 2.3, 2.0)))
    assert (row["method"], row["pairs"]) == ("paired t", 4)


def test_too_few_runs_without_a_shared_seed_have_no_verdict() -> None:
    row = only(frame(a=runs(0, *A), b=runs(10, 1.0, 2.0)))
    assert row["verdict"] == "no verdict"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "failed", "value": None}, "failures differ between the groups (1 here, 0 in the baseline)"),
        ({"budget": 5.0}, "unequal budgets: unpaired runs with 10 and 5"),
        ({"code": "other"}, "mixed code: the runs come from 2 versions"),
    ],
)
def test_what_forbids_a_verdict_of_pairs_forbids_one_of_unpaired_runs(change: dict, said: str) -> None:
    values = frame(a=runs(0, *A), b=runs(10, *B, 2.2)).with_columns(budget=pl.lit(10.0), code=pl.lit("same"))
    last = (pl.col("cell") == "b") & (pl.col("seed") == 13)
    values = values.with_columns(
        pl.when(last).then(pl.lit(to)).otherwise(pl.col(name)).alias(name) for name, to in change.items()
    )
    row = only(values)
    assert row["verdict"] == "no verdict"
    assert row["reason"].startswith(said)


# -- promises ---------------------------------------------------------------------------------------------------------

REPS = 6000


def two_arms(n: int, rho: float, difference: float, reps: int = REPS) -> tuple[np.ndarray, np.ndarray]:
    """Runs of two arms, [reps, n] each, whose runs of one seed correlate by `rho`; standard deviation 1."""
    shared, ours, theirs = np.random.default_rng([n, int(100 * rho)]).normal(size=(3, reps, n))
    ours, theirs = (np.sqrt(rho) * shared + np.sqrt(1 - rho) * own for own in (ours, theirs))
    return ours + difference, theirs


@pytest.mark.parametrize("n", [3, 8])
@pytest.mark.parametrize("ratio", [2.0])
def test_unpaired_families_get_any_false_verdict_at_most_five_times_in_a_hundred(n: int, ratio: float) -> None:
    rng = np.random.default_rng([n, 7])
    base = rng.normal(size=(REPS, 1, n))
    cells = ratio * rng.normal(size=(REPS, 5, n))
    words = decide(welch(cells, base), rope=0.0, alpha=0.05, better="lower").words
    claimed = np.isin(words, ["better", "worse", "real, size unproven"]).any(-1).sum()
    assert claimed <= stats.binom.ppf(0.999, REPS, 0.05)


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_the_unpaired_interval_covers_at_least_as_often_as_it_says_for_normal_noise(ratio: float) -> None:
    rng = np.random.default_rng(5)
    low, high = t_interval(welch(ratio * rng.normal(size=(REPS, 5)) + 0.7, rng.normal(size=(REPS, 4))))
    missed = ((low > 0.7) | (high < 0.7)).sum()
    assert missed <= stats.binom.ppf(0.999, REPS, 0.055)
    assert missed >= REPS * 0.03


def power(n: int, left: int, rho: float, difference: float) -> tuple[float, float]:
    """Share of simulations that find the difference when `left` of n runs of the cell are missing: paired, Welch."""
    ours, theirs = two_arms(n, rho, difference)
    kept = slice(0, n - left)
    paired = p_zero(summarise(ours[:, kept] - theirs[:, kept]))
    return float((paired <= 0.05).mean()), float((p_zero(welch(ours[:, kept], theirs)) <= 0.05).mean())


@pytest.mark.parametrize(("n", "left"), [(4, 1), (8, 2)])
def test_with_three_pairs_left_pairing_finds_more_as_soon_as_seeds_have_much_in_common(n: int, left: int) -> None:
    for rho in (0.8, 0.95):
        paired, unpaired = power(n, left, rho, 1.0)
        assert paired > 1.5 * unpaired
    paired, unpaired = power(n, left, 0.0, 1.0)
    assert paired < unpaired < paired + 0.12
    assert all(rate < 0.06 for rate in power(n, left, 0.5, 0.0))
