"""Main effects: what each level of each axis adds to the mean of the grid."""

from itertools import product

import numpy as np
import polars as pl
import pytest

from store.statistics import factorial

GATE = {"constant": 0.0, "layer": -0.1, "head": -0.2, "query": 0.3}
SINK = {"off": 0.25, "on": -0.25}
SEEDS = {0: 0.4, 1: -0.1, 2: -0.3}


def main_effects(values: pl.DataFrame, names: list[str], *, scale: str) -> pl.DataFrame:
    levels = {
        name: values[name].drop_nulls().unique(maintain_order=True).to_list() if name in values.columns else []
        for name in names
    }
    return factorial(values, levels, scale=scale, order=1).effects  # type: ignore[arg-type]


def runs(noise: float = 0.0, rng: np.random.Generator | None = None) -> pl.DataFrame:
    rng = rng or np.random.default_rng(0)
    return pl.DataFrame(
        [
            {"seed": s, "gate": g, "sink": k, "value": 2.0 + SEEDS[s] + GATE[g] + SINK[k] + noise * rng.normal()}
            for s, g, k in product(SEEDS, GATE, SINK)
        ]
    )


def effect(found: pl.DataFrame, column: str = "effect") -> dict[tuple[str, str], float | None]:
    return {(row["factor"], row["level"]): row[column] for row in found.iter_rows(named=True)}


PLANTED = {("gate", level): size for level, size in GATE.items()} | {("sink", level): x for level, x in SINK.items()}


def test_a_planted_truth_is_recovered_although_cells_are_missing() -> None:
    everything = runs()
    some = everything.filter(~((pl.col("gate") == "query") & (pl.col("sink") == "off") & (pl.col("seed") != 1)))
    some = some.filter(~((pl.col("gate") == "head") & (pl.col("sink") == "on")))
    found = main_effects(some, ["gate", "sink"], scale="linear")
    assert effect(found) == pytest.approx(PLANTED)
    assert effect(found, "n")["gate", "head"] == 3
    means = some.group_by("gate").agg(pl.col("value").mean() - some["value"].mean())
    assert abs(dict(means.iter_rows())["head"] - GATE["head"]) > 0.1, "plain means must fail here, or nothing is shown"


@pytest.mark.parametrize("scale", ["linear", "logit"])
def test_per_cent_are_of_the_grid_mean_whichever_runs_are_missing(scale: str) -> None:
    values = runs()
    if scale == "logit":
        values = values.with_columns(value=1 / (1 + (-pl.col("value")).exp()))
    some = values.filter(~((pl.col("sink") == "on") & (pl.col("seed") != 1)))
    whole, found = (main_effects(each, ["gate", "sink"], scale=scale) for each in (values, some))
    assert found["n"].to_list() != whole["n"].to_list()
    assert effect(found, "percent") == pytest.approx(effect(whole, "percent"))


def test_the_interval_covers_the_planted_effect_as_often_as_it_says() -> None:
    from scipy import stats

    rng, reps, missed = np.random.default_rng(8), 200, 0
    for _ in range(reps):
        found = main_effects(runs(0.2, rng)[3:], ["gate", "sink"], scale="linear").row(1, named=True)
        missed += not found["low"] <= GATE[found["level"]] <= found["high"]
    low, high = stats.binom.ppf([0.0005, 0.9995], reps, 0.05)
    assert low <= missed <= high


def test_the_log_scale_gives_log_ratios_and_per_cent_of_the_grid_mean() -> None:
    values = runs().with_columns(pl.col("value").exp())
    found = main_effects(values, ["gate", "sink"], scale="log")
    assert effect(found) == pytest.approx(PLANTED)
    assert effect(found, "percent")["gate", "query"] == pytest.approx(np.expm1(0.3) * 100)


def test_an_axis_that_does_not_apply_somewhere_compares_its_own_levels() -> None:
    rows = [
        {"seed": s, "kind": kind, "gate": gate, "value": SEEDS[s] + base + (GATE[gate] if gate else 0.0)}
        for s in SEEDS
        for kind, base, gate in [("softmax", 1.0, None), ("ours", 0.0, "head"), ("ours", 0.0, "layer")]
    ]
    found = effect(main_effects(pl.DataFrame(rows), ["kind", "gate"], scale="linear"))
    assert found["gate", "layer"] == pytest.approx(0.05)
    assert found["gate", "head"] == pytest.approx(-0.05)
    assert found["kind", "softmax"] - found["kind", "ours"] == pytest.approx(1.15)
    assert ("gate", "None") not in found


def test_what_the_present_cells_cannot_tell_apart_is_null() -> None:
    values = runs().filter((pl.col("gate") == "head") == (pl.col("sink") == "on"))
    found = main_effects(values, ["gate", "sink"], scale="linear")
    assert found.filter(pl.col("factor") == "sink")["effect"].to_list() == [None, None]
    alone = effect(main_effects(runs().filter(pl.col("sink") == "on"), ["gate", "sink"], scale="linear"))
    assert ("sink", "on") not in alone
    assert alone["gate", "query"] == pytest.approx(0.3)
