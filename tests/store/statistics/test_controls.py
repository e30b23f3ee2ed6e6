"""Beyond its controls: an intersection-union test over them, and Holm over the variants."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.store.statistics import beyond_controls

SEEDS = 8


def table(columns, state="done"):
    """One row per cell and seed; None is a run without a value."""
    return pl.DataFrame(
        [
            {"cell": cell, "label": cell.upper(), "operator": cell, "seed": seed, "value": value, "state": state}
            for cell, values in columns.items()
            for seed, value in enumerate(values)
        ],
        schema_overrides={"value": pl.Float64},
    )


def draw(rng, **means):
    shared = rng.normal(size=SEEDS)
    return {cell: shared + mean + 0.3 * rng.normal(size=SEEDS) for cell, mean in means.items()}


def judged(columns, controls, missing=None, alpha=0.05):
    frame = beyond_controls(
        table(columns), baseline="base", controls=controls, missing=missing, scale="linear", alpha=alpha
    )
    return {row["cell"]: row for row in frame.iter_rows(named=True)}


def test_numbers_are_those_of_scipy():
    columns = draw(np.random.default_rng(1), base=0.0, a=-1.0, b=-0.9, c=-0.3, window=-0.6, alibi=-0.4)
    rows = judged(columns, {"a": ["window", "alibi"], "b": ["alibi"], "c": ["window"]})
    own = {
        "a": max(stats.ttest_rel(columns["a"], columns[each]).pvalue for each in ("window", "alibi")),
        "b": stats.ttest_rel(columns["b"], columns["alibi"]).pvalue,
        "c": 1.0,  # the window is better
    }
    assert {cell: row["p"] for cell, row in rows.items()} == pytest.approx(own)
    adjusted = np.maximum.accumulate(np.sort([*own.values()]) * [3, 2, 1]).clip(max=1)
    assert sorted(row["p_holm"] for row in rows.values()) == pytest.approx(adjusted)
    interval = stats.ttest_rel(columns["a"], columns["window"]).confidence_interval(0.95)
    assert (rows["a"]["control"], rows["a"]["pairs"]) == ("window", SEEDS)
    assert (rows["a"]["low"], rows["a"]["high"]) == pytest.approx((interval.low, interval.high))
    assert rows["a"]["difference"] == pytest.approx((columns["a"] - columns["window"]).mean())
    assert {cell: row["beyond"] for cell, row in rows.items()} == {
        cell: "yes" if row["p_holm"] <= 0.05 else "no" for cell, row in rows.items()
    }


def test_a_control_that_explains_more_than_the_whole_is_not_exceeded():
    columns = draw(np.random.default_rng(2), base=0.0, a=-1.0, window=-5.0)
    row = judged(columns, {"a": ["window"]})["a"]
    assert (row["beyond"], row["p"]) == ("no", 1.0)
    assert row["low"] > 0


def test_the_control_that_decides_is_shown_and_not_the_nearest():
    rng = np.random.default_rng(8)
    columns = draw(rng, base=0.0, a=-2.0, near=-1.5, unsteady=-0.5)
    columns["unsteady"][0] -= 9.0  # one seed, on which it is ahead
    row = judged(columns, {"a": ["near", "unsteady"]})["a"]
    assert (row["beyond"], row["control"]) == ("no", "unsteady")
    assert row["p"] == pytest.approx(
        max(stats.ttest_rel(columns["a"], columns[c]).pvalue for c in ("near", "unsteady"))
    )
    assert row["low"] < 0 < row["high"]


@pytest.mark.parametrize(("mean", "word"), [(-3.0, "unknown"), (0.0, "no")])
def test_one_missing_control_gives_unknown_unless_another_says_no(mean, word):
    columns = draw(np.random.default_rng(3), base=1.0, a=mean, window=0.0)
    row = judged(columns, {"a": ["window"]}, {"a": ["ALiBi"]})["a"]
    assert (row["beyond"], row["untested"], row["p"]) == (word, ["ALiBi"], None)


def test_a_control_without_three_pairs_is_not_tested():
    columns = draw(np.random.default_rng(4), base=1.0, a=-3.0, window=0.0, alibi=0.0)
    columns["alibi"] = [*columns["alibi"][:2], *[None] * (SEEDS - 2)]
    row = judged(columns, {"a": ["window", "alibi"]})["a"]
    assert (row["beyond"], row["untested"], row["control"]) == ("unknown", ["ALIBI"], "window")


def test_variants_without_controls_have_no_row():
    columns = draw(np.random.default_rng(5), base=0.0, a=-1.0, b=-1.0, window=0.0)
    rows = judged(columns, {"a": ["window"]})
    assert [*rows] == ["a"]
    assert rows["a"]["family"] == 1


def test_a_false_beyond_is_as_rare_as_alpha_promises():
    """Each of three variants equals one of its two controls: 5 % of tables at most have any "yes"."""
    rng, tables = np.random.default_rng(6), 400
    means = {"base": 3.0, "a": 0.0, "b": 0.0, "c": 0.0, "same": 0.0, "far": 9.0}
    controls = {cell: ["same", "far"] for cell in "abc"}
    false = sum(
        any(row["beyond"] == "yes" for row in judged(draw(rng, **means), controls).values()) for _ in range(tables)
    )
    assert false <= stats.binom.ppf(0.999, tables, 0.05)
    alone = sum(judged(draw(rng, **means), {"a": ["same", "far"]})["a"]["beyond"] == "yes" for _ in range(tables))
    # with the sign of the baseline's difference, half of alpha is used
    assert stats.binom.ppf(0.001, tables, 0.025) <= alone <= stats.binom.ppf(0.999, tables, 0.025)


def test_a_variant_beyond_all_is_found():
    rng, tables = np.random.default_rng(7), 100
    means = {"base": 3.0, "a": 0.0, "window": 1.0, "alibi": 2.0}
    hits = sum(judged(draw(rng, **means), {"a": ["window", "alibi"]})["a"]["beyond"] == "yes" for _ in range(tables))
    power = stats.nct.sf(stats.t.ppf(0.975, SEEDS - 1), SEEDS - 1, SEEDS**0.5 / (0.3 * 2**0.5))
    assert hits >= stats.binom.ppf(0.001, tables, power)
