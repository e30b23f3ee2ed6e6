"""Runs that failed or have no finite value: rates, words and reasons of their own, and the basis of a verdict."""

import math
from itertools import product
from typing import Any

import polars as pl
import pytest
from scipy import stats

from ablate.store.analysis.explain_verdict import why_text
from ablate.store.statistics import compare, failures, holm
from ablate.store.statistics.arms import arms
from ablate.store.statistics.compare import BASIS as SCHEMA, basis
from ablate.store.statistics.failures import fisher_p, wilson_interval

COUNTS = [(0, 1), (0, 5), (1, 5), (5, 5), (3, 8), (17, 40)]


@pytest.mark.parametrize(("events", "n"), COUNTS)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_wilson_interval_is_scipys(events: int, n: int, alpha: float) -> None:
    expected = stats.binomtest(events, n).proportion_ci(1 - alpha, method="wilson")
    assert wilson_interval(events, n, alpha) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("events", "n"), COUNTS)
@pytest.mark.parametrize(("other", "m"), COUNTS)
def test_fishers_p_is_scipys(events: int, n: int, other: int, m: int) -> None:
    expected = stats.fisher_exact([[events, n - events], [other, m - other]]).pvalue
    assert fisher_p(events, n, other, m) == pytest.approx(expected, rel=1e-9)


def test_every_ended_run_counts_and_only_an_attempt_that_failed_is_a_failure(frame) -> None:
    values = frame(
        {"softmax": [1.0] * 8, "SSA": [None] * 6 + [math.nan, math.inf], "late": [None] * 8},
        {
            **{("SSA", seed): "failed" for seed in range(6)},
            **{("late", seed): ("running", "pending")[seed % 2] for seed in range(8)},
        },
    )
    softmax, ssa, late = failures(values, baseline="key of softmax").iter_rows(named=True)
    assert (softmax["ended"], softmax["failed"], softmax["p"]) == (8, 0, None)
    assert (ssa["ended"], ssa["failed"], ssa["not_finite"], ssa["rate"]) == (8, 6, 2, 0.75)
    assert ssa["p"] == pytest.approx(fisher_p(6, 8, 0, 8))
    assert ssa["p_holm"] == pytest.approx(holm_of_two(ssa["p"]))
    assert (late["ended"], late["rate"], late["low"], late["p"]) == (0, None, None, None)


def holm_of_two(p: float) -> float:
    import numpy as np

    return float(holm(np.array([p, math.nan]))[0])


RULE: dict[str, Any] = {"baseline": "key of a", "scale": "linear", "better": "higher", "rope": 0.05}
GOOD = [0.5, 0.61, 0.7, 0.84, 0.9, 1.0]


def reason(frame: Any, failed: dict[str, int], infinite: dict[str, int], seeds: int = 6) -> str:
    """The reason of b against a; the first seeds of each failed, and the next ones measured NaN, inf or -inf."""
    values, state = {}, {}
    for label in "ab":
        n, more = failed.get(label, 0), infinite.get(label, 0)
        strange = [math.nan, math.inf, -math.inf] * seeds
        values[label] = [None] * n + strange[:more] + GOOD[n + more : seeds]
        state |= {(label, seed): "failed" for seed in range(n)}
    row = compare(frame(values, state), **RULE).row(0, named=True)
    assert row["verdict"] == "no verdict" or not failed | infinite
    return str(row["reason"])


@pytest.mark.parametrize("where", ["a", "b"])
def test_runs_that_finished_without_a_finite_value_did_not_fail(frame: Any, where: str) -> None:
    for n in range(1, 7):
        told = reason(frame, {}, {where: n})
        assert "fail" not in told
        assert f" {n} finished run" in told
        assert ("baseline" in told.partition("differ")[2] + told) or where == "b"


def test_both_kinds_are_counted_apart(frame: Any) -> None:
    for n, more in product(range(1, 4), range(1, 4)):
        told = reason(frame, {"b": n}, {"b": more})
        assert (f"{n} run" in told or f"{n} failed" in told, f"{more} finished run" in told) == (True, True)
    told = reason(frame, {"a": 6}, {"b": 6})
    assert "6 finished runs here" in told or "6 runs in the baseline failed" in told


def test_failures_alone_are_told_as_before(frame: Any) -> None:
    assert reason(frame, {"b": 6}, {}).startswith("all 6 runs here failed")
    assert "1 failed only here" in reason(frame, {"b": 1}, {})
    assert "finite" not in reason(frame, {"b": 1}, {}) + reason(frame, {"b": 6}, {})


def test_outcomes_are_words_of_their_own(frame: Any) -> None:
    values = frame({"a": [1.0, math.nan, math.inf, None, None]}, {("a", 3): "failed", ("a", 4): "running"})
    (arm,) = arms(values).values()
    outcomes = [arm.runs[seed].outcome for seed in range(5)]
    assert outcomes == ["measured", "not finite", "not finite", "failed", "outstanding"]


def test_unpaired_groups_with_as_many_of_both_kinds_are_compared(frame: Any) -> None:
    """Equal numbers are no selection, whichever kind they are."""
    for failed, infinite, barred in (({"b": 1}, {"a": 1}, False), ({}, {"b": 2}, True), ({"a": 1}, {"b": 2}, True)):
        values = frame({"a": GOOD, "b": GOOD}, {})
        rows = values.to_dicts()
        for row in rows:
            row["seed"] += 10 * (row["label"] == "b")
            place = row["seed"] % 10
            if place < failed.get(row["label"], 0):
                row |= {"state": "failed", "value": None}
            elif place < failed.get(row["label"], 0) + infinite.get(row["label"], 0):
                row["value"] = math.nan
        found = compare(type(values)(rows, schema=values.schema), **RULE).row(0, named=True)
        assert found["method"] == "Welch"
        assert ("fair sample" in found["reason"]) == barred
        assert not barred or f"{sum(infinite.values())} finished run" in found["reason"]


BASE = [1.0, 1.3, 0.8, 1.1, 0.9, 1.2]
CELL = [0.7, 0.9, 0.62, 0.71, 0.66, 0.8]


def only(values: pl.DataFrame, scale: str = "log") -> dict:
    found = basis(values, baseline="key of softmax", scale=scale)
    assert found.schema == pl.Schema(SCHEMA)
    return found.row(0, named=True)


def test_every_check_is_that_of_an_independent_computation(frame) -> None:
    row = only(frame({"softmax": BASE, "SSA": CELL}))
    logs = [[math.log(value) for value in side] for side in (CELL, BASE)]
    differences = [ours - theirs for ours, theirs in zip(*logs, strict=True)]
    assert row["normal_p"] == pytest.approx(stats.shapiro(differences).pvalue)
    assert row["unpaired_p"] == pytest.approx(stats.ttest_ind(*logs, equal_var=False).pvalue)
    assert (row["spread"], row["baseline_spread"]) == pytest.approx(tuple(stats.tstd(side) for side in logs))
    assert row["leans_on_normal"] is False
    assert (row["seeds"], row["baseline_seeds"]) == (list(range(6)), list(range(6)))


def test_runs_failures_budgets_and_code_are_counted(frame) -> None:
    state = {("SSA", 0): "failed", ("SSA", 1): "failed", ("softmax", 1): "failed", ("softmax", 2): "failed"}
    values = frame({"softmax": BASE, "SSA": CELL}, state, budget={("SSA", 3): "90"}, code={("SSA", 4): None})
    values = values.with_columns(budget=pl.col("budget").replace("usual", "60").cast(pl.Float64))
    row = only(values)
    assert (row["failed_here"], row["failed_baseline"], row["failed_both"]) == (1, 1, 1)
    assert (row["seeds"], row["baseline_seeds"]) == ([2, 3, 4, 5], [0, 3, 4, 5])
    assert (row["budgets"], row["codes"]) == ([60.0, 90.0], ["unknown", "usual"])


def test_a_measure_that_is_not_finite_is_no_failed_run(frame) -> None:
    state = {("SSA", 0): "failed"}
    cell = [None, math.nan, math.inf, *CELL[3:]]
    row = only(frame({"softmax": [-math.inf, *BASE[1:]], "SSA": cell}, state))
    assert (row["failed_here"], row["failed_baseline"], row["failed_both"]) == (1, 0, 0)
    assert (row["not_finite_here"], row["not_finite_baseline"]) == (2, 1)
    assert (row["seeds"], row["baseline_seeds"]) == ([3, 4, 5], [1, 2, 3, 4, 5])


def test_few_pairs_and_a_sign_flip_test_that_objects_lean_on_normal_noise(frame) -> None:
    assert only(frame({"softmax": BASE[:4], "SSA": CELL[:4]}))["leans_on_normal"]
    logs = [0.001, 0.5, 0.55, 0.6, 0.62, -0.01]
    cell = [base * math.exp(log) for base, log in zip(BASE, logs, strict=True)]
    assert only(frame({"softmax": BASE, "SSA": cell}))["leans_on_normal"]


def test_what_does_not_exist_is_null_and_still_has_sentences(frame) -> None:
    values = frame({"softmax": [1.0, 2.0], "SSA": [None, None]}, {("SSA", 0): "pending", ("SSA", 1): "pending"})
    row = only(values)
    assert (row["spread"], row["normal_p"], row["unpaired_p"]) == (None, None, None)
    rules = {"baseline": "key of softmax", "scale": "log", "better": "lower", "rope": 0.05}
    lines = why_text({**compare(values, **rules).row(0, named=True), **row, "items": None, "checks": []})
    assert not any("None" in line or "nan" in line or " - " in line for line in lines)
