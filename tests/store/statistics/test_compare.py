import math
import re

import numpy as np
import polars as pl
import pytest

from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.store.statistics import compare
from ablate.store.statistics.compare import SCHEMA
from ablate.store.statistics.scales import response
from ablate.store.statistics.verdict import UNAFFORDABLE, seeds_outlook

BASE = [1.0, 1.3, 0.8, 1.1, 0.9]
NOISE = np.array([0.01, -0.02, 0.015, -0.01, 0.005])
RULES = {"baseline": "key of softmax", "scale": "log", "better": "lower", "rope": 0.05}


def times(factor: float, base: list[float] = BASE) -> list[float]:
    return [float(b * factor * math.exp(e)) for b, e in zip(base, np.resize(NOISE, len(base)), strict=True)]


def only(values: pl.DataFrame, **rules) -> dict:
    found = compare(values, **{**RULES, **rules})
    assert found.height == 1
    return found.row(0, named=True)


def test_a_cell_a_third_lower_is_better_and_the_numbers_agree_with_each_other(frame) -> None:
    row = only(frame({"softmax": BASE, "SSA": times(2 / 3)}))
    assert (row["cell"], row["label"], row["planned"], row["pairs"]) == ("key of SSA", "SSA", 5, 5)
    assert row["verdict"] == "better"
    assert row["value"] == pytest.approx(math.exp(np.log(times(2 / 3)).mean()))
    assert row["difference"] == pytest.approx(math.log(row["value"] / row["baseline_value"]))
    assert row["percent"] == pytest.approx(100 * (row["value"] / row["baseline_value"] - 1))
    assert row["low"] < row["difference"] < row["high"] < 0
    assert row["hedges_g"] < 0
    assert row["superiority"] == 1.0
    assert row["sign_flip_p"] is None
    assert row["pairing"] > 0.9


def test_every_word_comes_with_a_reason_and_the_family_is_every_planned_comparison(frame) -> None:
    wild = [0.6, 1.9, 0.7, 1.2, 0.9]
    arms = {"softmax": BASE, "a": times(0.5), "b": times(1.7), "c": times(1.0), "d": times(0.955), "e": wild, "f": BASE}
    found = compare(frame(arms), **RULES)
    assert found["verdict"].to_list() == [
        "better", "worse", "equivalent", "real, size unproven", "undecided", "no verdict"
    ]  # fmt: skip
    assert set(found["verdict"]) == {"better", "worse", "equivalent", "real, size unproven", "undecided", "no verdict"}
    assert found["family"].to_list() == [6] * 6
    assert found.schema == pl.Schema(SCHEMA)


def test_holm_over_more_comparisons_can_only_weaken_a_verdict(frame) -> None:
    cell = [float(b * 0.88 * math.exp(3 * e)) for b, e in zip(BASE, NOISE, strict=True)]
    assert only(frame({"softmax": BASE, "SSA": cell}))["verdict"] == "better"
    crowd = {f"other {i}": times(1.0) for i in range(40)}
    crowded = compare(frame({"softmax": BASE, "SSA": cell, **crowd}), **RULES).row(0, named=True)
    assert crowded["verdict"] != "better"


HALF = times(0.5)
LOST, NO = [*HALF[:4], None], "no verdict"
LAST_FAILED = {("SSA", 4): "failed"}
BUDGETS = {(label, seed): steps for label, steps in (("softmax", 1000), ("SSA", 2000)) for seed in range(5)}
JUDGED: dict[str, tuple[tuple[list, list], dict, str, str]] = {
    "two pairs": (([1.0, 2.0], [0.1, 0.21]), {}, NO, "2 pairs of 2 planned; a verdict needs at least 3"),
    "failed here": ((BASE, LOST), {"state": LAST_FAILED}, NO, "failures differ .*1 failed only here"),
    "failed there": (([*BASE[:4], None], HALF), {"state": {("softmax", 4): "failed"}}, NO, "failures differ"),
    "all failed": ((BASE, [None] * 5), {"state": {("SSA", seed): "failed" for seed in range(5)}}, NO, "all 5 runs"),
    "partner runs": (
        ([*BASE[:4], None], LOST),
        {"state": {("softmax", 4): "running"} | LAST_FAILED},
        "better",
        "preliminary: 4 of 5 seeds; ",
    ),
    "both failed": (([*BASE[:4], None], LOST), {"state": {("softmax", 4): "failed"} | LAST_FAILED}, "better", ""),
    "budgets": ((BASE, HALF), {"budget": BUDGETS}, NO, "unequal budgets: seed 0 has 2000 here and 1000 in the"),
    "mixed code": ((BASE, HALF), {"code": {("SSA", 2): "other"}}, NO, ".*2 versions of the code"),
    "unknown code": ((BASE, HALF), {"code": {("SSA", 2): None}}, NO, ""),
    "no code": ((BASE, HALF), {"code": dict.fromkeys(BUDGETS)}, "better", ""),
    "equal": ((BASE, BASE), {}, NO, ""),
    "constant ratio": ((BASE, [3.3 * b for b in BASE]), {}, NO, ".*same on every seed"),
    "constant offset": ((BASE, [b + 0.7 for b in BASE]), {"scale": "linear"}, NO, ".*same on every seed"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_what_forbids_a_verdict_leaves_the_numbers_and_no_p(frame, case: str) -> None:
    (base, cell), given, verdict, reason = JUDGED[case]
    rules = {name: given[name] for name in given if name in RULES}
    columns = {name: given[name] for name in given if name not in RULES}
    row = only(frame({"softmax": base, "SSA": cell}, **columns), **rules)
    assert row["verdict"] == verdict
    assert re.match(reason, row["reason"]), row["reason"]
    without_spread = case in ("all failed", "equal", "constant ratio", "constant offset")
    assert (row["difference"] is None) == (case == "all failed")
    assert HALF[:4] != cell[:4] or row["difference"] == pytest.approx(math.log(0.5), abs=0.02)
    assert (row["low"] is None) == without_spread
    assert (row["hedges_g"] is None) == (without_spread or case == "two pairs")
    assert {row[name] is None for name in ("p", "p_holm", "seeds_needed", "detectable")} == {True} or verdict != NO


@pytest.mark.parametrize("bad", [0.0, -0.1])
def test_the_log_scale_has_no_verdict_for_a_value_that_is_not_positive(frame, bad: float) -> None:
    row = only(frame({"softmax": BASE, "SSA": [*times(0.5)[:4], bad]}))
    assert (row["verdict"], row["difference"], row["value"]) == ("no verdict", None, None)
    assert "log scale" in row["reason"]
    assert only(frame({"softmax": BASE, "SSA": [*times(0.5)[:4], bad]}), scale="linear")["difference"] is not None


# -- preliminary, undecided, caution --------------------------------------------------------------------------------


def test_undecided_says_how_many_seeds_would_decide(frame) -> None:
    row = only(frame({"softmax": BASE, "SSA": [0.9, 1.6, 0.7, 1.3, 1.0]}))
    assert row["verdict"] == "undecided"
    assert row["seeds_needed"] > 5
    assert re.search(r"about \d+ seeds \(\d+ more\)", row["reason"])
    equal = only(frame({"softmax": BASE, "SSA": times(1.0)}), rope=0.0)
    assert (equal["verdict"], seeds_outlook(equal["reason"])) == ("undecided", UNAFFORDABLE)
    assert row["detectable"] > 0.05


def test_undecided_never_asks_for_fewer_seeds_than_there_are(frame) -> None:
    """The noise would show a difference as large as the ROPE; this one lies between zero and the ROPE."""
    cell = [float(b * math.exp(0.025 + 1.9 * e)) for b, e in zip(BASE, NOISE, strict=True)]
    row = only(frame({"softmax": BASE, "SSA": cell}))
    assert row["verdict"] == "undecided"
    assert row["seeds_needed"] <= 5
    assert int(row["reason"].split("about ")[1].split(" ")[0]) > 5


def test_a_verdict_that_the_sign_flip_test_does_not_share_carries_a_caution(frame) -> None:
    base = [1.0, 1.3, 0.8, 1.1, 0.9, 1.2]
    logs = [0.001, 0.5, 0.55, 0.6, 0.62, -0.01]
    row = only(
        frame({"softmax": base, "SSA": [float(b * math.exp(e)) for b, e in zip(base, logs, strict=True)]}), rope=0.0
    )
    assert row["verdict"] == "worse"
    assert row["sign_flip_p"] > 0.05
    assert "caution" in row["reason"]


# -- input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"scale": "ln"}, "scale='ln'; write one of log, linear, logit"),
        ({"better": "up"}, "better='up'; write one of lower, higher"),
        ({"rope": -1.0}, "rope=-1.0;"),
        ({"rope": math.nan}, "rope=nan;"),
        ({"alpha": 1.0}, "alpha=1.0;"),
    ],
)
def test_a_rule_without_meaning_is_named(frame, rules: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        only(frame({"softmax": BASE, "SSA": BASE}), **rules)


def test_unusable_runs_are_named(frame) -> None:
    values = frame({"softmax": BASE, "SSA": BASE})
    with pytest.raises(NotFoundError, match="'softmax' is not among the 2 cells; did you mean 'key of softmax'"):
        only(values, baseline="softmax")
    with pytest.raises(StoreError, match="'softmax' has seed 0 twice"):
        only(pl.concat([values, values]))
    with pytest.raises(StoreError, match="'SSA' seed 1 has the state 'ok'"):
        only(frame({"softmax": BASE, "SSA": BASE}, {("SSA", 1): "ok"}))
    with pytest.raises(SpecError, match=r"\['state'\] are missing"):
        only(values.drop("state"))


def test_values_whose_squares_are_no_numbers_have_no_verdict_on_the_linear_scale(frame) -> None:
    """And none of the suite's forbidden warnings on the way; on the log scale they are like any others."""
    huge = frame({"softmax": [1e308 * base for base in BASE], "SSA": [-1e308 * value for value in times(0.5)]})
    row = only(huge, scale="linear")
    assert (row["verdict"], row["difference"], row["p_holm"]) == ("no verdict", None, None)
    with pytest.raises(SpecError, match=r"1e\+308 is not below 1e\+150, as the linear scale needs; give"):
        response(np.array([1.0, 1e308]), "linear")
    assert only(huge.with_columns(pl.col("value").abs()))["verdict"] == "better"
