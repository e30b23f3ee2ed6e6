"""Learning curves at equal cost: closed forms of step functions, censoring, pairs by seed."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.grid.errors import SpecError
from ablate.store.statistics.curves import Curve, CurveRule, compare_curves, cost_to_reach, mean_until, value_at

STEPS = Curve(np.array([10.0, 20.0, 40.0]), np.array([3.0, 2.0, 1.0]))
LINEAR = CurveRule("linear")


def points(
    cells: dict[str, list[list[float]]], *, every: float = 10.0, state: dict[str, str] | None = None
) -> pl.DataFrame:
    """One curve per label and seed: its values at `every`, twice that, and so on."""
    rows = [
        {"cell": f"key of {label}", "label": label, "seed": seed, "cost": every * (at + 1), "value": value}
        | {"state": (state or {}).get(f"{label} {seed}", "done")}
        for label, seeds in cells.items()
        for seed, curve in enumerate(seeds)
        for at, value in enumerate(curve)
    ]
    return pl.DataFrame(rows)


def row(found: pl.DataFrame, question: str, label: str = "SSA") -> dict[str, object]:
    return found.row(by_predicate=(pl.col("question") == question) & (pl.col("label") == label), named=True)


def test_a_run_has_the_last_value_recorded_at_or_before_the_cost() -> None:
    assert [value_at(STEPS, x) for x in (10, 19.9, 20, 39, 40)] == [3, 3, 2, 2, 1]
    assert math.isnan(value_at(STEPS, 9.9)), "nothing is known before the first"
    assert math.isnan(value_at(STEPS, 40.1)), "nor after the last: it is not carried on"


def test_the_area_is_that_under_the_steps() -> None:
    assert mean_until(STEPS, 10, 40) == pytest.approx((10 * 3 + 20 * 2) / 30)
    assert mean_until(STEPS, 15, 30) == pytest.approx((5 * 3 + 10 * 2) / 15)
    assert math.isnan(mean_until(STEPS, 10, 50))
    fine = np.linspace(15, 30, 200_001)[:-1]
    assert mean_until(STEPS, 15, 30) == pytest.approx(np.mean([value_at(STEPS, x) for x in fine[::100]]), abs=1e-3)


def test_a_level_is_reached_at_the_first_cost_or_never_before_the_end() -> None:
    assert cost_to_reach(STEPS, 2.5, "lower") == (20, False)
    assert cost_to_reach(STEPS, 0.5, "lower") == (40, True)
    assert cost_to_reach(STEPS, 2.5, "higher") == (10, False)


def test_differences_are_paired_by_seed_at_a_common_budget() -> None:
    rng = np.random.default_rng(0)
    base, ours = rng.normal(3, 1, (5, 4)), rng.normal(2, 1, (5, 6))
    found = compare_curves(points({"softmax": base.tolist(), "SSA": ours.tolist()}), LINEAR, baseline="key of softmax")
    end = row(found, "value at")
    assert (end["at"], end["pairs"]) == (40, 5), "all runs have 40, the last common cost"
    t = stats.ttest_rel(ours[:, 3], base[:, 3])
    assert (end["difference"], end["p"]) == pytest.approx(
        ((ours - np.pad(base, ((0, 0), (0, 2))))[:, 3].mean(), t.pvalue)
    )
    assert (end["low"], end["high"]) == pytest.approx(tuple(t.confidence_interval()))
    assert end["ahead"] == (ours[:, 3] < base[:, 3]).sum()
    area = row(found, "mean until")
    assert area["difference"] == pytest.approx((ours[:, :3].mean(1) - base[:, :3].mean(1)).mean())


def test_the_cost_to_a_level_is_a_ratio_and_a_censored_run_leaves_only_counts() -> None:
    base = [[4.0, 3, 2, 1, 0]] * 4
    fast = [[2.0, 1, 1, 1, 1], [4.0, 2, 1, 1, 1], [2.0, 1, 1, 1, 1], [2.0, 1, 1, 1, 1]]
    never = [*fast[:3], [5.0, 5, 5, 5, 5]]
    cells = {"softmax": base, "SSA": fast, "Integral": never}
    found = compare_curves(points(cells), LINEAR, baseline="key of softmax", level=2.0)
    reached = row(found, "cost to")
    assert reached["difference"] == pytest.approx(np.log([10, 20, 10, 10]).mean() - np.log(30))
    assert reached["percent"] == pytest.approx(100 * math.expm1(reached["difference"]))
    assert (reached["value"], reached["baseline_value"]) == pytest.approx((10 * 2**0.25, 30))
    cut = row(found, "cost to", "Integral")
    assert [cut[name] for name in ("difference", "low", "p", "ahead", "behind")] == [None, None, None, 3, 1]
    assert cut["note"] == "1 of 4 runs of Integral end before they reach 2"


def test_a_censored_run_is_only_known_to_need_more() -> None:
    cells = {"softmax": [[3.0, 3, 3, 3], [3.0, 1, 1, 1]], "SSA": [[3.0, 3], [3.0, 3]]}
    found = row(compare_curves(points(cells), LINEAR, baseline="key of softmax", level=2.0), "cost to")
    assert (found["ahead"], found["behind"]) == (0, 1), "both censored at different costs: nothing is known"


def test_a_run_that_breaks_off_does_not_shorten_the_budget_and_is_told() -> None:
    cells = {"softmax": [[3.0, 2, 1]] * 4, "SSA": [[2.0, 1, 0.5]] * 3 + [[2.0, math.nan, 1.0]]}
    found = row(compare_curves(points(cells), LINEAR, baseline="key of softmax"), "value at")
    assert (found["at"], found["pairs"]) == (30, 3)
    note = str(found["note"])
    assert "1 of 4 shared seeds" in note
    assert "1 finished run" in note
    assert "fail" not in note
    short = points({"softmax": [[3.0, 2, 1]] * 4, "SSA": [[2.0, 1, 0.5]] * 3 + [[2.0]]}, state={"SSA 3": "failed"})
    assert row(compare_curves(short, LINEAR, baseline="key of softmax"), "value at")["at"] == 30


def noisy(seed: int, mean: float, seeds: int = 8) -> list[list[float]]:
    return (mean + np.random.default_rng(seed).normal(0, 0.1, (seeds, 4))).tolist()


@pytest.mark.parametrize("broken", ["SSA", "softmax"])
def test_pairs_that_failures_left_in_one_arm_get_no_p_and_no_interval(broken: str) -> None:
    """However clear the survivors are; a budget that all have reached is compared as if nothing had failed."""
    cells = {"softmax": noisy(0, 3.0), "SSA": noisy(1, 2.0)}
    cells[broken] = [curve if seed < 3 else curve[:2] for seed, curve in enumerate(cells[broken])]
    values = points(cells, state={f"{broken} {seed}": "failed" for seed in range(3, 8)})
    found = compare_curves(values, LINEAR, baseline="key of softmax")
    where = "here" if broken == "SSA" else "in the baseline"
    for question in ("value at", "mean until"):
        end = row(found, question)
        assert [end[name] for name in ("pairs", "low", "high", "p", "p_holm")] == [3, None, None, None, None]
        assert end["difference"] == pytest.approx(-1, abs=0.3)
        assert f"failures differ between the groups (5 failed only {where})" in str(end["note"])
    early = row(compare_curves(values, LINEAR, baseline="key of softmax", budget=20), "value at")
    assert (early["pairs"], early["note"]) == (8, "")
    assert early["p"] < 0.001  # type: ignore[operator]
    alike = {label: [*curves[:3], *(curve[:2] for curve in curves[3:])] for label, curves in cells.items()}
    values = points(alike, state={f"{label} {seed}": "failed" for label in alike for seed in range(3, 8)})
    both = row(compare_curves(values, LINEAR, baseline="key of softmax", budget=40), "value at")
    assert both["p"] is not None
    assert str(both["note"]).startswith("5 of 8 shared seeds have no value there; caution: with fewer than 5 pairs")


def test_differences_that_vary_by_rounding_only_are_no_evidence() -> None:
    """Offsets and ratios that are the same on every seed but for the last digits, on 4,000 recorded values."""
    base = (3 + np.random.default_rng(5).normal(0, 1, (4, 4000))).tolist()
    cells = {"softmax": base, "SSA": [[value - 0.1 for value in curve] for curve in base], "same": base}
    found = compare_curves(points(cells), LINEAR, baseline="key of softmax")
    for question in ("value at", "mean until"):
        moved, same = row(found, question), row(found, question, "same")
        assert moved["difference"] == pytest.approx(-0.1)
        assert [each[name] for each in (moved, same) for name in ("low", "high", "p", "p_holm")] == [None] * 8
        assert "the difference is the same on every seed" in moved["note"]
        assert "the values equal the baseline's on every seed" in same["note"]
    fast = {"softmax": [[4.0] * seed + [1.0] * 9 for seed in (2, 4, 6, 8)]}
    fast["SSA"] = [[4.0] * seed + [1.0] * 9 for seed in (5, 9, 13, 17)]  # a third, a fifth, ... : twice the cost
    reached = row(compare_curves(points(fast), LINEAR, baseline="key of softmax", level=2.0), "cost to")
    assert (reached["percent"], reached["p"], reached["low"]) == (pytest.approx(100), None, None)
    assert "the same on every seed" in str(reached["note"])


@pytest.mark.parametrize("budget", [9.9, 40.1, -5.0, math.nan, math.inf])
def test_a_budget_is_among_the_recorded_costs_and_a_level_is_a_number(budget: float) -> None:
    values = points({"softmax": [[3.0, 2, 1, 1]] * 3, "SSA": [[3.0, 2, 1, 1]] * 3})
    with pytest.raises(SpecError, match=r"the budget .* recorded costs; give one from 10 to 40"):
        compare_curves(values, LINEAR, baseline="key of softmax", budget=budget)
    for level in (math.nan, math.inf):
        with pytest.raises(SpecError, match=r"the level (nan|inf) "):
            compare_curves(values, LINEAR, baseline="key of softmax", level=level)


def test_intervals_cover_the_planted_difference_as_often_as_they_say() -> None:
    rng, missed, reps = np.random.default_rng(2), 0, 200
    for _ in range(reps):
        shared = rng.normal(0, 2, (5, 1))
        cells = {
            "softmax": (shared + rng.normal(0, 1, (5, 2))).tolist(),
            "SSA": (0.7 + shared + rng.normal(0, 1, (5, 2))).tolist(),
        }
        found = row(compare_curves(points(cells), LINEAR, baseline="key of softmax"), "value at")
        missed += not found["low"] <= 0.7 <= found["high"]
    low, high = stats.binom.ppf([0.0005, 0.9995], reps, 0.05)
    assert low <= missed <= high
