"""Learning curves at equal cost: closed forms of step functions, censoring, pairs by seed."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from grid.errors import NotFoundError, SpecError
from store.statistics.curves import Curve, Rule, compare_curves, cost_to_reach, mean_until, value_at

STEPS = Curve(np.array([10.0, 20.0, 40.0]), np.array([3.0, 2.0, 1.0]))
LINEAR = Rule("linear")


def points(
    cells: dict[str, list[list[float]]], *, every: float = 10.0, status: dict[str, str] | None = None
) -> pl.DataFrame:
    """One curve per label and seed: its values at `every`, twice that, and so on."""
    rows = [
        {"cell": f"key of {label}", "label": label, "seed": seed, "cost": every * (at + 1), "value": value}
        | {"status": (status or {}).get(f"{label} {seed}", "ok")}
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
    assert (found["at"], found["pairs"], found["note"]) == (30, 3, "1 of 4 shared seeds have no value there")
    short = points({"softmax": [[3.0, 2, 1]] * 4, "SSA": [[2.0, 1, 0.5]] * 3 + [[2.0]]}, status={"SSA 3": "failed"})
    assert row(compare_curves(short, LINEAR, baseline="key of softmax"), "value at")["at"] == 30


def test_holm_is_over_the_cells_of_one_question() -> None:
    rng = np.random.default_rng(1)
    cells = {
        name: rng.normal(shift, 1, (6, 3)).tolist() for name, shift in (("softmax", 0), ("SSA", 2), ("Integral", 3))
    }
    found = compare_curves(points(cells), LINEAR, baseline="key of softmax")
    for _, of in found.group_by("question"):
        p = sorted(zip(of["p"], of["p_holm"], strict=True))
        assert p[0][1] == pytest.approx(2 * p[0][0])


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


def test_what_is_missing_is_named() -> None:
    with pytest.raises(SpecError, match=r"curves need the columns .*\['cost'\] are missing"):
        compare_curves(points({"softmax": [[1.0]]}).drop("cost"), LINEAR, baseline="x")
    with pytest.raises(NotFoundError, match=r"'key of sofmax' has no curve; did you mean 'key of softmax'"):
        compare_curves(points({"softmax": [[1.0]]}), LINEAR, baseline="key of sofmax")
    with pytest.raises(NotFoundError, match="no run has a curve with a finite value"):
        compare_curves(points({"softmax": [[math.nan]]}), LINEAR, baseline="key of softmax")
