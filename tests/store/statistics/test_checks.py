"""The basis of a verdict agrees with the runs."""

import math

import polars as pl
import pytest
from scipy import stats

from ablate.store.analysis.explain_verdict import why_text
from ablate.store.statistics import compare
from ablate.store.statistics.compare import CHECKS as SCHEMA, checks

BASE = [1.0, 1.3, 0.8, 1.1, 0.9, 1.2]
CELL = [0.7, 0.9, 0.62, 0.71, 0.66, 0.8]


def only(values: pl.DataFrame, scale: str = "log") -> dict:
    found = checks(values, baseline="key of softmax", scale=scale)
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
    status = {("SSA", 0): "failed", ("SSA", 1): "failed", ("softmax", 1): "failed", ("softmax", 2): "failed"}
    values = frame({"softmax": BASE, "SSA": CELL}, status, budget={("SSA", 3): "90"}, code={("SSA", 4): None})
    values = values.with_columns(budget=pl.col("budget").replace("usual", "60").cast(pl.Float64))
    row = only(values)
    assert (row["failed_here"], row["failed_baseline"], row["failed_both"]) == (1, 1, 1)
    assert (row["seeds"], row["baseline_seeds"]) == ([2, 3, 4, 5], [0, 3, 4, 5])
    assert (row["budgets"], row["codes"]) == ([60.0, 90.0], ["unknown", "usual"])


def test_a_measure_that_is_not_finite_is_no_failed_run(frame) -> None:
    status = {("SSA", 0): "failed"}
    cell = [None, math.nan, math.inf, *CELL[3:]]
    row = only(frame({"softmax": [-math.inf, *BASE[1:]], "SSA": cell}, status))
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
    lines = why_text({**compare(values, **rules).row(0, named=True), **row, "items": None})
    assert not any("None" in line or "nan" in line or " - " in line for line in lines)
