"""Differences between levels with seeds as the sample, against scipy and simulations of new seeds."""

from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.grid.errors import SpecError
from ablate.store.statistics import SeedContrasts, factorial, seed_contrasts
from ablate.store.statistics.verdict import few

GATE, SINK = ("constant", "layer", "head"), ("off", "on")
RULE = {"scale": "linear", "better": "lower", "rope": 0.05}


def runs(
    shifts: dict[str, float], *, seeds: int = 6, noise: float = 0.1, own: float = 0.0, rng: int = 0
) -> pl.DataFrame:
    """A crossed grid; `own` is the standard deviation over seeds of what a level of sink does."""
    draw = np.random.default_rng(rng)
    rows = []
    for seed in range(seeds):
        reacts = {level: own * draw.normal() for level in SINK}
        base = draw.normal()
        for gate, sink in product(GATE, SINK):
            size = sum(shifts.get(level, 0.0) + reacts.get(level, 0.0) for level in (gate, sink))
            value = base + size + noise * draw.normal()
            rows.append({"seed": seed, "cell": f"{gate} {sink}", "gate": gate, "sink": sink, "value": value})
    return pl.DataFrame(rows)


def contrasts(values: pl.DataFrame, gate: tuple[str, ...] = GATE, **more: object) -> SeedContrasts:
    factors = {"gate": [level for level in gate if level in set(values["gate"])], "sink": list(SINK)}
    return seed_contrasts(values, factors, **{**RULE, **more})  # type: ignore[arg-type]


def of_seed(values: pl.DataFrame, **at: str) -> list[float]:
    return values.filter(**at).group_by("seed").agg(pl.col("value").mean()).sort("seed")["value"].to_list()


def test_each_level_is_compared_by_the_paired_t_test_of_scipy() -> None:
    values = runs({"head": -0.5, "on": 0.3}, own=0.2)
    found = contrasts(values)
    assert found.effects.select("factor", "level", "against", "n").rows() == [
        ("gate", "layer", "constant", 6),
        ("gate", "head", "constant", 6),
        ("sink", "on", "off", 6),
    ]
    for row in found.effects.rows(named=True):
        sides = (of_seed(values, **{row["factor"]: row[side]}) for side in ("level", "against"))
        expected = stats.ttest_rel(*sides)
        interval = expected.confidence_interval(0.95)
        assert row["p"] == pytest.approx(expected.pvalue)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        error, critical = row["effect"] / expected.statistic, stats.t.ppf(1 - 0.05 / 6, 5)
        power = stats.nct(5, row["detectable"] / error)
        assert power.sf(critical) + power.cdf(-critical) == pytest.approx(0.8)
    assert found.effects["p_holm"].to_list() == pytest.approx(_holm(found.effects["p"].to_list()))
    other = contrasts(values, ("head", "constant", "layer")).effects
    assert other.filter(level="constant")["effect"][0] == pytest.approx(
        -found.effects.filter(level="head")["effect"][0]
    )


def _holm(p: list[float]) -> list[float]:
    order, adjusted, largest = sorted(range(len(p)), key=p.__getitem__), [0.0] * len(p), 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - place) * p[at]))
        adjusted[at] = largest
    return adjusted


def test_two_levels_have_interactions_as_differences_of_differences() -> None:
    values = runs({"head": -0.5}, own=0.1).filter(pl.col("gate") != "layer")
    both = (pl.col("gate") == "head") & (pl.col("sink") == "on")
    values = values.with_columns(value=pl.col("value") + pl.when(both).then(0.4).otherwise(0.0))
    found = contrasts(values).effects
    assert found["family"].to_list() == [2, 2, 1]
    row = found.row(2, named=True)
    assert (row["factor"], row["level"], row["against"], row["order"]) == (
        "gate × sink",
        "head × on",
        "constant × off",
        2,
    )
    at = {(gate, sink): np.array(of_seed(values, gate=gate, sink=sink)) for gate, sink in product(GATE[::2], SINK)}
    twice = at["head", "on"] - at["head", "off"] - at["constant", "on"] + at["constant", "off"]
    assert row["effect"] == pytest.approx(twice.mean())
    assert row["p"] == pytest.approx(stats.ttest_1samp(twice, 0).pvalue)


def test_intervals_cover_the_effect_on_new_seeds_where_those_about_these_seeds_do_not() -> None:
    """With a seed x level interaction, the residual of the factorial model is too small."""
    reps, ours, theirs = 400, 0, 0
    for rep in range(reps):
        values = runs({"on": 0.3}, seeds=5, own=0.3, rng=rep)
        row = contrasts(values).effects.row(by_predicate=pl.col("factor") == "sink", named=True)
        ours += row["low"] <= 0.3 <= row["high"]
        found = factorial(values, {"gate": GATE, "sink": SINK}, scale="linear", order=1)
        half = stats.t.ppf(0.975, 22) * float(found.noise or 0) * (2 / 15) ** 0.5
        theirs += abs(row["effect"] - 0.3) <= half
    low, high = stats.binom.ppf([0.001, 0.999], reps, 0.95)
    assert low <= ours <= high
    assert theirs / reps < 0.75


def test_only_seeds_with_all_cells_count_and_the_note_says_how_many() -> None:
    values = runs({"on": 0.3})
    lost = (pl.col("seed") == 2) & (pl.col("cell") == "head on")
    some = values.with_columns(value=pl.when(lost).then(None).otherwise(pl.col("value")))
    found = contrasts(some)
    assert found.effects.equals(contrasts(values.filter(pl.col("seed") != 2)).effects)
    assert found.seeds == [0, 1, 3, 4, 5]
    said = "5 of 6 seeds have a value of all 6 cells; only these count for differences between levels, not 2"
    assert found.notes == [said]
    gone = values.with_columns(value=pl.when(pl.col("cell") == "head on").then(None).otherwise(pl.col("value")))
    without = contrasts(gone)
    assert without.seeds == list(range(6))
    assert without.notes[0].startswith("1 of 6 cells have no value on any seed")
    assert without.notes[0].endswith(": head on")
    assert without.effects.equals(contrasts(values.filter(pl.col("cell") != "head on")).effects)
    apart = values.with_columns(value=pl.when((pl.col("seed") < 3) == (pl.col("sink") == "on")).then(pl.col("value")))
    assert contrasts(apart).effects.is_empty()
    assert contrasts(apart).seeds == []


def test_an_axis_of_some_cells_compares_its_own_levels() -> None:
    rows = [
        {"seed": s, "cell": f"{kind} {gate}", "kind": kind, "gate": gate, "value": s + base + size + 0.01 * (s == 1)}
        for s in range(5)
        for kind, gate, base, size in [
            ("softmax", None, 1.0, 0.0),
            ("ours", "head", 0.0, 0.4),
            ("ours", "layer", 0.0, 0.2),
        ]
    ]
    factors = {"kind": ["softmax", "ours"], "gate": ["layer", "head"]}
    kind, gate = seed_contrasts(pl.DataFrame(rows), factors, **RULE).effects.rows(named=True)  # type: ignore[arg-type]
    assert kind["effect"] == pytest.approx(-0.7)
    assert gate["effect"] == pytest.approx(0.2)


def test_axes_that_the_cells_cannot_tell_apart_have_no_effect() -> None:
    values = runs({}).filter((pl.col("gate") == "head") == (pl.col("sink") == "on"))
    found = contrasts(values).effects
    assert found["effect"].null_count() == found.filter(verdict="no verdict").height == 3 - found["effect"].count()
    assert found.filter(factor="sink")["effect"].to_list() == [None]


def test_verdicts_hold_over_the_family_and_few_seeds_are_a_caution() -> None:
    shifts = {"head": -0.9, "on": RULE["rope"]}
    found = contrasts(runs(shifts, noise=0.001))
    assert dict(found.effects.select("level", "verdict").rows()) == {
        "layer": "equivalent",
        "head": "better",
        "on": "real, size unproven",
    }
    assert found.notes == []
    assert contrasts(runs(shifts, noise=0.001), better="higher").effects.filter(level="head")["verdict"][0] == "worse"
    assert contrasts(runs(shifts, noise=0.001, seeds=4)).notes == [few("seeds")]
    still = contrasts(runs(shifts, noise=0.0)).effects
    assert set(still["verdict"]) == {"no verdict"}
    logs = contrasts(runs(shifts, noise=0.001).with_columns(pl.col("value").exp()), scale="log").effects
    assert logs.filter(level="head")["percent"][0] == pytest.approx(100 * np.expm1(-0.9), abs=0.2)


def test_runs_of_several_codes_have_no_verdict_and_a_missing_column_is_named() -> None:
    values = runs({"head": -0.9}, noise=0.001)
    mixed = values.with_columns(code=pl.when(pl.col("cell") == "head on").then(pl.lit("b")).otherwise(pl.lit("a")))
    found = contrasts(mixed)
    assert set(found.effects["verdict"]) == {"no verdict"}
    assert found.effects["corrected_low"].null_count() == found.effects.height
    assert "2 versions of the code" in found.notes[0]
    with pytest.raises(SpecError, match="the column 'cell' of effects is missing"):
        contrasts(values.drop("cell"))
