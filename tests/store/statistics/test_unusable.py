"""*Failed* is said of attempts that failed alone; a measure that is no finite number has a reason of its own."""

import math
from itertools import product
from typing import Any

import pytest

from ablate.store.statistics import compare
from ablate.store.statistics.arms import arms

RULE: dict[str, Any] = {"baseline": "key of a", "scale": "linear", "better": "higher", "rope": 0.05}
GOOD = [0.5, 0.61, 0.7, 0.84, 0.9, 1.0]


def reason(frame: Any, failed: dict[str, int], infinite: dict[str, int], seeds: int = 6) -> str:
    """The reason of b against a; the first seeds of each failed, and the next ones measured NaN, inf or -inf."""
    values, status = {}, {}
    for label in "ab":
        n, more = failed.get(label, 0), infinite.get(label, 0)
        strange = [math.nan, math.inf, -math.inf] * seeds
        values[label] = [None] * n + strange[:more] + GOOD[n + more : seeds]
        status |= {(label, seed): "failed" for seed in range(n)}
    row = compare(frame(values, status), **RULE).row(0, named=True)
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
                row |= {"status": "failed", "value": None}
            elif place < failed.get(row["label"], 0) + infinite.get(row["label"], 0):
                row["value"] = math.nan
        found = compare(type(values)(rows, schema=values.schema), **RULE).row(0, named=True)
        assert found["method"] == "Welch"
        assert ("fair sample" in found["reason"]) == barred
        assert not barred or f"{sum(infinite.values())} finished run" in found["reason"]
