"""Factorial analysis against a planted truth, an oracle that compares models, and its promises on simulated grids."""

import math
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from scipy import special, stats

from ablate.grid.errors import SpecError
from ablate.store.statistics.design import build, read_factors
from ablate.store.statistics.factorial import Factorial, factorial, omega_interval, partial_omega_squared
from ablate.store.statistics.least_squares import fit, wald

AXES = {"gate": ["constant", "head", "query"], "sink": ["off", "on"], "norm": ["l1", "l2", "sum"]}
GATE = {"constant": 0.3, "head": -0.1, "query": -0.2}
SINK = {"off": 0.25, "on": -0.25}
BOTH = {("constant", "off"): 0.2, ("head", "off"): -0.2, ("constant", "on"): -0.2, ("head", "on"): 0.2}
MEAN = 2.0


def truth(gate: str, sink: str) -> float:
    return MEAN + GATE[gate] + SINK[sink] + BOTH.get((gate, sink), 0.0)


def runs(noise: float = 0.0, seeds: int = 3, rng: np.random.Generator | None = None) -> pl.DataFrame:
    rng = rng or np.random.default_rng(1)
    return pl.DataFrame(
        [
            {"seed": s, "gate": g, "sink": k, "norm": n, "value": truth(g, k) + s + noise * rng.normal()}
            for s, g, k, n in product(range(seeds), *AXES.values())
        ]
    )


def row(found: Factorial, term: str) -> dict[str, object]:
    return found.terms.row(by_predicate=pl.col("term") == term, named=True)


def mean(found: Factorial, term: str, level: str) -> dict[str, object]:
    return found.means.row(by_predicate=(pl.col("term") == term) & (pl.col("level") == level), named=True)


def dummies(values: pl.DataFrame, names: tuple[str, ...]) -> np.ndarray:
    """One column for each combination of levels that occurs: no coding, no contrasts."""
    seen = values.select(names).rows()
    return np.array([[each == level for level in dict.fromkeys(seen)] for each in seen], dtype=float)


def residual(values: pl.DataFrame, terms: list[tuple[str, ...]]) -> tuple[float, int]:
    """Sum of squares and degrees of freedom that numpy leaves of a model of dummies."""
    x = np.hstack([dummies(values, term) for term in terms])
    y = values["value"].to_numpy()
    solution, _, rank, _ = np.linalg.lstsq(x, y, rcond=1e-10)
    return float(((y - x @ solution) ** 2).sum()), len(y) - int(rank)


TWO = {name: AXES[name] for name in ("gate", "sink")}
TERMS = [*((name,) for name in AXES), *combinations(AXES, 2)]


def by_comparison(values: pl.DataFrame, term: tuple[str, ...]) -> tuple[float, int]:
    """F and its degrees of freedom from the terms that do not contain `term`, with and without it (type II)."""
    whole, left = residual(values, [("seed",), *TERMS])
    base = [("seed",), *(each for each in TERMS if not set(term) <= set(each))]
    without, with_it = residual(values, base), residual(values, [*base, term])
    df = without[1] - with_it[1]
    return (without[0] - with_it[0]) / df / (whole / left), df


@pytest.mark.parametrize("term", TERMS)
def test_a_complete_grid_has_the_f_of_comparing_models_fitted_to_dummies(term: tuple[str, ...]) -> None:
    values = runs(0.4)
    found = row(factorial(values, AXES, scale="linear"), " × ".join(term))
    f, df = by_comparison(values, term)
    assert (found["f"], found["df"]) == (pytest.approx(f, rel=1e-9), df)
    assert found["p"] == pytest.approx(stats.f.sf(f, df, found["df_error"]), rel=1e-9)


@pytest.mark.parametrize("term", TERMS[3:])
def test_so_do_interactions_when_runs_and_a_pair_of_levels_are_missing(term: tuple[str, ...]) -> None:
    values = runs(0.4).sample(44, seed=5).filter(~((pl.col("gate") == "head") & (pl.col("sink") == "on")))
    found = row(factorial(values, AXES, scale="linear"), " × ".join(term))
    f, df = by_comparison(values, term)
    assert (found["f"], found["df"]) == (pytest.approx(f, rel=1e-8), df)


def test_a_main_effect_compares_means_over_levels_counted_alike_although_runs_are_missing() -> None:
    """Type III: the same F as that of the contrasts of the cell means of a model of dummies."""
    values = runs(0.4).sample(40, seed=2)
    found = row(
        factorial(
            values.select("seed", "gate", "sink", "value"), {k: AXES[k] for k in ("gate", "sink")}, scale="linear"
        ),
        "gate",
    )
    x = np.hstack([dummies(values, ("gate", "sink")), dummies(values, ("seed",))[:, 1:]])
    cells = list(dict.fromkeys(values.select("gate", "sink").rows()))
    y = values["value"].to_numpy()
    inverse = np.linalg.inv(x.T @ x)
    beta = inverse @ x.T @ y
    s2 = ((y - x @ beta) ** 2).sum() / (len(y) - x.shape[1])
    contrast = np.zeros((2, x.shape[1]))
    for at, (gate, _) in enumerate(cells):
        contrast[:, at] = {"constant": (1, 0), "head": (-1, 1), "query": (0, -1)}[gate]
    difference = contrast @ beta
    f = difference @ np.linalg.solve(contrast @ inverse @ contrast.T, difference) / 2 / s2
    assert found["f"] == pytest.approx(f, rel=1e-9)


def test_one_axis_of_two_levels_is_the_paired_t_test() -> None:
    values = runs(0.4, seeds=6).filter(norm="l1", gate="head")
    found = row(factorial(values, {"sink": AXES["sink"]}, scale="linear"), "sink")
    sides = [values.filter(sink=level)["value"].to_numpy() for level in ("off", "on")]
    t = stats.ttest_rel(*sides)
    assert (found["f"], found["p"]) == pytest.approx((t.statistic**2, t.pvalue))


def test_planted_means_are_recovered_although_cells_are_missing() -> None:
    every = runs(1e-6)
    lost = (pl.col("gate") == "query") & (pl.col("sink") == "off") & (pl.col("norm") != "l1")
    drawn = pl.Series(np.random.default_rng(7).random(every.height) < 0.15)
    planned = every.with_columns(value=pl.when(lost | drawn).then(None).otherwise("value"))
    values = planned.drop_nulls("value")
    plain = values.filter(gate="query")["value"].mean() - values["value"].mean()
    assert abs(plain - GATE["query"]) > 0.05, "plain means must fail here, or nothing is shown"
    found = factorial(planned, AXES, scale="linear")
    assert mean(found, "gate", "query")["note"] == "adjusted"
    assert mean(found, "gate", "query")["own_mean"] == pytest.approx(values.filter(gate="query")["value"].mean())
    middle = MEAN + values["seed"].unique().mean()
    for level, effect in GATE.items():
        assert mean(found, "gate", level)["mean"] == pytest.approx(middle + effect, abs=1e-5)
    for gate, sink in product(GATE, SINK):
        got = mean(found, "gate × sink", f"{gate} × {sink}")["mean"]
        assert got == pytest.approx(truth(gate, sink) + middle - MEAN, abs=1e-5)


def test_a_pair_of_levels_without_runs_is_named_and_nothing_is_made_up_for_it() -> None:
    values = runs(0.1).filter(~((pl.col("gate") == "head") & (pl.col("sink") == "on")))
    found = factorial(values, AXES, scale="linear")
    both = row(found, "gate × sink")
    assert (both["df"], both["note"]) == (1, "no run has gate head with sink on; 1 of 2 degrees of freedom are tested")
    assert set(both["aliased_with"]) == {"gate", "sink"}
    gate = row(found, "gate")
    assert gate["note"] == "no run has gate head with sink on; tested as if it had no interaction with sink"
    assert gate["f"] == pytest.approx(by_comparison(values, ("gate",))[0])
    assert row(found, "norm")["aliased_with"] == []
    assert (mean(found, "gate × sink", "head × on")["mean"], mean(found, "gate × sink", "head × on")["note"]) == (
        None,
        "no run",
    )
    own = values.filter(norm="l1")["value"].mean()  # an average over the combinations that are planned
    assert (mean(found, "norm", "l1")["mean"], mean(found, "norm", "l1")["note"]) == (pytest.approx(own), "")
    assert mean(found, "gate", "head")["note"] == "adjusted, as if there were no gate × sink"
    assert mean(found, "gate × sink", "query × on")["note"] == ""


def test_axes_that_cannot_be_told_apart_are_named_and_untested() -> None:
    values = runs(0.1).filter((pl.col("gate") == "head") == (pl.col("sink") == "on"), pl.col("gate") != "query")
    found = factorial(values, AXES, scale="linear", order=1)
    for name, other in (("gate", "sink"), ("sink", "gate")):
        assert (row(found, name)["f"], row(found, name)["aliased_with"]) == (None, [other])
        assert row(found, name)["note"].endswith(f"it cannot be told from {other}")
    assert row(found, "norm")["f"] is not None
    for name, level in (("gate", "head"), ("gate", "constant"), ("sink", "on"), ("sink", "off")):
        assert (mean(found, name, level)["mean"], mean(found, name, level)["note"]) == (None, "not estimable")
    assert mean(found, "norm", "l1")["mean"] is not None


def test_a_level_of_one_seed_only_cannot_be_told_from_the_seed() -> None:
    values = runs(0.1).filter((pl.col("seed") == 2) == (pl.col("sink") == "on"))
    assert row(factorial(values, AXES, scale="linear", order=1), "sink")["aliased_with"] == ["seed"]


def test_an_axis_that_applies_to_one_kind_only_is_tested_among_its_own() -> None:
    rng = np.random.default_rng(3)
    kinds = [("softmax", None), ("ours", "head"), ("ours", "layer")]
    values = pl.DataFrame(
        [
            {"seed": s, "kind": kind, "gate": gate, "wide": wide, "value": s + rng.normal()}
            for s, (kind, gate), wide in product(range(4), kinds, ("no", "yes"))
        ]
    )
    axes = {"kind": ["softmax", "ours"], "gate": ["head", "layer"], "wide": ["no", "yes"]}
    found = factorial(values, axes, scale="linear")
    assert found.notes == ["gate applies only where kind is ours, so they have no interaction"]
    assert found.terms["term"].to_list() == ["kind", "gate", "wide", "kind × wide", "gate × wide"]
    assert found.terms["aliased_with"].list.len().to_list() == [0] * 5
    head = values.filter(gate="head")["value"].to_numpy() - values.filter(gate="layer")["value"].to_numpy()
    contrast = head.mean() / 2
    centre = mean(found, "gate", "head")["mean"], mean(found, "gate", "layer")["mean"]
    assert (centre[0] - centre[1]) / 2 == pytest.approx(contrast)


def test_what_is_left_out_is_told_with_its_state() -> None:
    values = runs(0.1).with_columns(
        state=pl.when(pl.int_range(pl.len()) < 2).then(pl.lit("failed")).otherwise(pl.lit("done"))
    )
    values = values.with_columns(
        pl.when(state="failed")
        .then(None)
        .when(pl.int_range(pl.len()) == 9)
        .then(math.inf)
        .otherwise("value")
        .alias("value")
    )
    found = factorial(values, AXES, scale="linear", order=1)
    assert found.notes == ["3 of 54 planned runs are left out: 2 failed, 1 without a finite value"]
    assert found.runs == 51
    lost = values.with_columns(pl.when(gate="query").then(None).otherwise("value").alias("value"))
    assert "no run with gate query has a value" in row(factorial(lost, AXES, scale="linear", order=1), "gate")["note"]


@pytest.mark.parametrize("alike", [True, False])
def test_failures_that_differ_between_the_levels_of_an_axis_are_told_in_its_row(alike: bool) -> None:
    """Losing one seed of both levels selects neither level."""
    lost = (pl.col("seed") == 0) if alike else (pl.col("seed") == 0) & (pl.col("sink") == "on")
    values = runs(0.1).with_columns(
        state=pl.when(lost).then(pl.lit("failed")).otherwise(pl.lit("done")),
        value=pl.when(lost).then(None).otherwise("value"),
    )
    notes = factorial(values, AXES, scale="linear").terms["note"].to_list()
    told = "" if alike else "runs failed unequally (9 of 27 with on), so means are of survivors"
    assert notes == ["", told, "", "", "", ""]


def test_without_anything_to_judge_the_noise_by_nothing_is_tested() -> None:
    one = runs(0.1, seeds=1).filter(norm="l1")
    found = factorial(one, AXES, scale="linear")
    assert found.terms["f"].null_count() == found.terms.height == 3
    assert found.means["low"].null_count() == found.means.height
    assert "as many effects as runs" in found.notes[-1]
    assert "there is no noise to test against" in factorial(runs(0.0), AXES, scale="linear").notes[-1]
    assert factorial(runs(0.0), AXES, scale="linear").terms["f"].null_count() == 6


def test_means_are_geometric_on_the_log_scale_and_of_odds_on_the_logit_scale() -> None:
    values = runs(0.3)
    linear = factorial(values, AXES, scale="linear")
    for scale, turn in (("log", np.exp), ("logit", special.expit)):
        found = factorial(
            values.with_columns(pl.col("value").map_batches(lambda x, f=turn: pl.Series(f(x.to_numpy())))),
            AXES,
            scale=scale,
        )
        assert found.terms["f"].to_numpy() == pytest.approx(linear.terms["f"].to_numpy())
        for column in ("mean", "low", "high"):
            assert found.means[column].to_numpy() == pytest.approx(turn(linear.means[column].to_numpy()))


def test_a_cell_whose_spread_is_another_is_told_and_equal_spreads_are_not() -> None:
    rng = np.random.default_rng(5)
    told = []
    for spread in (1.0, 30.0):
        noisy = runs(noise=0.0, seeds=8)
        sizes = np.where((noisy["gate"] == "head") & (noisy["sink"] == "on"), spread, 1.0)
        noisy = noisy.with_columns(value=pl.col("value") + pl.Series(sizes * rng.normal(size=noisy.height)))
        told.append(any("spread" in note for note in factorial(noisy, AXES, scale="linear").notes))
    assert told == [False, True]


def test_what_has_no_meaning_is_refused_in_a_sentence() -> None:
    with pytest.raises(SpecError, match=r"column 'gat'.*did you mean 'gate'"):
        factorial(runs(), {"gat": []}, scale="linear")
    with pytest.raises(SpecError, match=r"order=3 .* write 1 .* or 2 "):
        factorial(runs(), AXES, scale="linear", order=3)
    with pytest.raises(SpecError, match="-1 is not above 0"):
        factorial(runs().with_columns(value=pl.lit(-1.0)), AXES, scale="log")
    with pytest.raises(SpecError, match="2 is not between 0 and 1"):
        factorial(runs().with_columns(value=pl.lit(2.0)), AXES, scale="logit")


REPS = 4000
SIZES = [2, 1, 2, 2, 4, 2]


def simulated(noise: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Many grids of one design with the planted truth: F of every term, and estimate, error and truth of every mean.

    `noise` [REPS, runs]; linear in the data, so one inverse serves all grids (the code itself gives it, by columns).
    """
    values = runs()[np.flatnonzero(keep)]
    design = build(values, read_factors(values, AXES, values), order=2, kept=values)
    whole = fit(design.matrix, values["value"].to_numpy())
    y = values["value"].to_numpy() + noise[:, keep]
    beta = y @ design.matrix @ whole.covariance
    variance = ((y - beta @ design.matrix.T) ** 2).sum(1) / whole.freedom
    f = []
    for term in design.tested:
        part, block = beta[:, term.columns], whole.covariance[term.columns, term.columns]
        f.append((part @ np.linalg.inv(block) * part).sum(1) / part.shape[1] / variance)
    gate = next(term for term in design.tested if term.name == "gate")
    first = beta[:, gate.columns.start]
    error = np.sqrt(variance * whole.covariance[gate.columns.start, gate.columns.start])
    one, rows = fit(design.matrix, y[0]), np.eye(design.matrix.shape[1])[gate.columns]
    assert f[0][0] == pytest.approx(wald(one, rows).squares / 2 / one.variance), "the simulation runs this code"
    return np.array(f), first, error, np.array([whole.freedom])


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    keep = rng.permutation(54) < 42
    return simulated(rng.normal(0, 0.5, (REPS, 54)), keep)


def usual(wrong: int, rate: float = 0.05) -> bool:
    low, high = stats.binom.ppf([0.0005, 0.9995], REPS, rate)
    return bool(low <= wrong <= high)


def test_intervals_cover_the_planted_effect_as_often_as_they_say_with_missing_cells(
    planted: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    _, first, error, freedom = planted
    half = stats.t.ppf(0.975, freedom) * error
    assert usual(int((np.abs(first - GATE["constant"]) > half).sum()))


def test_terms_without_effect_are_claimed_five_times_in_a_hundred_and_planted_ones_are_found(
    planted: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    f, _, _, freedom = planted
    found = dict(zip(["gate", "sink", "norm", "gate × sink", "gate × norm", "sink × norm"], f, strict=True))
    p = {name: stats.f.sf(of, size, freedom) for (name, of), size in zip(found.items(), SIZES, strict=True)}
    for name in ("norm", "gate × norm", "sink × norm"):
        assert usual(int((p[name] <= 0.05).sum())), name
    assert (p["gate"] <= 0.05).mean() > 0.5
    assert (p["sink"] <= 0.05).mean() > 0.5
    assert (p["gate × sink"] <= 0.05).mean() > 0.2


def test_omega_squared_is_nearly_unbiased_and_its_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(2)
    df, left, n = 3, 40, 60
    for share in (0.0, 0.2):
        strength = n * share / (1 - share)
        f = stats.ncf.rvs(df, left, strength, size=REPS, random_state=rng) if share else rng.f(df, left, REPS)
        value = partial_omega_squared(f, np.full(REPS, df), n)
        assert value.mean() == pytest.approx(share, abs=0.01)
        low, high = omega_interval(f, np.full(REPS, float(df)), left, n)
        missed = (low > share) | (share > high)
        assert usual(int(missed.sum()), 0.1 if share else 0.05)
        assert ((low > 0) == (stats.f.sf(f, df, left) < 0.05)).all()
        if not share:
            assert 0.4 < (value < 0).mean() < 0.7


def test_the_interval_of_omega_squared_inverts_scipys_noncentral_f() -> None:
    f, df = np.array([0.1, 6.0, 40.0, 5e5]), np.array([3.0, 2.0, 5.0, 1.0])
    low, high = omega_interval(f, df, 30, 50)
    for at in (1, 2, 3):
        strength = low[at] / (1 - low[at]) * 50, high[at] / (1 - high[at]) * 50
        assert stats.ncf.cdf(f[at], df[at], 30, strength) == pytest.approx((0.95, 0.05), abs=1e-4)
    assert (low[0], high[0]) == (0, 0)
    assert np.isnan(omega_interval(np.array([np.nan]), np.array([3.0]), 30, 50)[0][0])


def test_p_is_adjusted_within_its_order_by_the_number_of_planned_terms() -> None:
    found = factorial(runs(1.0), AXES, scale="linear").terms
    for _, part in found.group_by("order"):
        p = part["p"].to_numpy()
        assert part["p_holm"].to_numpy()[p.argmin()] == pytest.approx(min(1, 3 * p.min()))
        assert part["p_holm"].to_numpy()[p.argmax()] > p.min()
