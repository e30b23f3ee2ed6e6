"""Compare, its costs, and Factors say what the command line says, and both what plain Python computes.

The grid has failed seeds, a cell that never ran and a cell that shares too few seeds with the baseline. It also has a
training metric with the name of its evaluation.
"""

import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from known_campaign import Line, Planted, plant, seen
from scipy import stats

from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.factors import FACTORS
from ablate.runners.cli.app import execute
from ablate.store import Campaign

OPERATORS, DEPTHS, SEEDS = ("softmax", "zeta", "alpha"), (1, 2), range(7)
BASELINE, BROKEN, GONE, APART = ("softmax", 1), ("zeta", 1), ("zeta", 2), ("alpha", 2)
SHIFT = {"softmax": 0.0, "zeta": -0.5, "alpha": 0.3}


def cell(line: Line) -> tuple[str, int]:
    return line["operator"], line["axes"]["depth"]


def label(of: tuple[str, int]) -> str:
    return f"{of[0]} · {of[1]}"


def mse(of: tuple[str, int], seed: int) -> float:
    noise = 0.01 * ((seed * (3 + 2 * len(of[0])) + 5 * of[1]) % 7)
    return math.exp(SHIFT[of[0]] + 0.2 * of[1] + 0.1 * seed + noise)


def seconds(of: tuple[str, int], seed: int) -> float:
    return 10.0 * of[1] * (1 + OPERATORS.index(of[0])) * (1 + 0.01 * ((seed * 3 + len(of[0])) % 4))


def state_of(of: tuple[str, int], seed: int) -> str:
    if of == GONE or (of == APART and seed < 3) or (of == BASELINE and seed > 3):
        return "pending"
    return "diverged" if of == BROKEN and seed == 2 else "ok"


def run_seeds(of: tuple[str, int]) -> list[int]:
    return [seed for seed in SEEDS if state_of(of, seed) == "ok"]


CELLS = tuple(product(OPERATORS, DEPTHS))
Asked = Callable[..., Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = Planted(
        lambda line: mse(cell(line), line["seed"]),
        lambda line: state_of(cell(line), line["seed"]),
        cost=lambda line: {"train_s": seconds(cell(line), line["seed"])},
        metrics=lambda _: {"mse": 99.0},
    )
    return plant(tmp_path_factory.mktemp("agree") / "runs", OPERATORS, SEEDS, planted, factors={"depth": DEPTHS})


@pytest.fixture
def asked(root: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    """Return the JSON output of a command."""

    def ask(*words: str) -> Any:
        assert execute([*words, "--json", "--campaign", str(root)]) == 0
        return json.loads(capsys.readouterr().out)["data"]

    return ask


def close(one: Any, other: Any) -> bool:
    """Whether two values are the same but for the last digits."""
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def expect_scipy(of: tuple[str, int]) -> dict[str, float]:
    """The difference from the baseline in logarithms, its interval and its p, by SciPy."""
    shared = sorted(set(run_seeds(of)) & set(run_seeds(BASELINE)))
    if len(shared) < 3:
        both = ([math.log(mse(each, seed)) for seed in run_seeds(each)] for each in (of, BASELINE))
        found = stats.ttest_ind(*both, equal_var=False)
        mean = float(np.mean([math.log(mse(of, s)) for s in run_seeds(of)])) - float(
            np.mean([math.log(mse(BASELINE, s)) for s in run_seeds(BASELINE)])
        )
    else:
        logs = [math.log(mse(of, seed) / mse(BASELINE, seed)) for seed in shared]
        found, mean = stats.ttest_1samp(logs, 0.0), float(np.mean(logs))
    low, high = found.confidence_interval(0.95)
    return {"difference": mean, "low": float(low), "high": float(high), "p": float(found.pvalue)}


def test_compare_says_what_the_table_and_plain_python_say(root: Path, asked: Asked) -> None:
    printed = {row["label"]: row for row in asked("table")}
    page = seen(root, COMPARE)
    drawn = {row["variant"]: row for row in page.frame("differences").iter_rows(named=True)}
    table = {row["variant"]: row for row in page.frame("verdicts").iter_rows(named=True)}
    assert set(printed) == set(drawn) == set(table) - {label(BASELINE)} == {label(of) for of in CELLS if of != BASELINE}
    for name, row in printed.items():
        for column in ("difference", "low", "high", "pairs", "method", "runs", "baseline_runs", "verdict"):
            assert close(drawn[name][column], row[column]), (name, column)
        assert table[name]["verdict"].endswith(row["verdict"])
        assert table[name]["reason"] == row["reason"]
        assert close(table[name]["value"], row["value"])
    methods = {name: row["method"] for name, row in printed.items()}
    assert [name for name, method in methods.items() if method == "Welch"] == [label(APART)]
    for of in CELLS:
        if of not in (BASELINE, GONE, BROKEN):
            for column, value in expect_scipy(of).items():
                assert printed[label(of)][column] == pytest.approx(value, rel=1e-6, abs=1e-12), (of, column)
    for of in (BROKEN, GONE):
        assert printed[label(of)]["verdict"] == "no verdict"
    assert drawn[label(GONE)]["difference"] is None
    own = Campaign(root).compare()
    for row in own.iter_rows(named=True):
        assert all(close(row[name], printed[row["label"]][name]) for name in ("p_holm", "percent", "verdict", "pairs"))


def level_effects() -> dict[tuple[str, str], list[float]]:
    """By axis and level, the difference from the baseline's level on each seed that has all cells but GONE."""
    cells = [of for of in CELLS if of != GONE]
    seeds = [seed for seed in SEEDS if all(seed in run_seeds(of) for of in cells)]
    x = np.array([[1.0, of[0] == "zeta", of[0] == "alpha", of[1] == 2] for of in cells], dtype=float)
    fits = [np.linalg.lstsq(x, np.log([mse(of, seed) for of in cells]), rcond=None)[0] for seed in seeds]
    names = (("operator", "zeta"), ("operator", "alpha"), ("depth", "2"))
    return {name: [float(fit[at]) for fit in fits] for at, name in enumerate(names, 1)}


def test_factors_say_what_the_command_and_least_squares_say(root: Path, asked: Asked) -> None:
    data = asked("effects")
    page = seen(root, FACTORS)
    effects = page.frame("effects")
    assert effects.drop("doubt").sort("factor", "level").equals(Campaign(root).effects().sort("factor", "level"))
    expected = level_effects()
    assert {(row["factor"], row["level"]) for row in data["effects"] if row["order"] == 1} == set(expected)
    for (factor, level), values in expected.items():
        row = effects.filter(factor=factor, level=level).row(0, named=True)
        assert row["effect"] == pytest.approx(np.mean(values), rel=1e-9)
        assert row["n"] == len(values) == len(data["seeds"])
    shown = {row["axis"]: row for row in page.frame("importance").iter_rows(named=True)}
    with_pairs = {row["term"]: row for row in asked("effects", "--interactions")["terms"]}
    assert {row["term"] for row in data["terms"]} <= set(with_pairs) == set(shown)
    for term, row in with_pairs.items():
        for ours, theirs in (("F", "f"), ("p (Holm)", "p_holm"), ("partial omega²", "omega_squared"), ("df", "df")):
            assert close(shown[term][ours], row[theirs]), (term, ours)


def test_costs_say_what_the_command_and_plain_python_say(root: Path, asked: Asked) -> None:
    printed = {row["label"]: row for row in asked("pareto")}
    page = seen(root, COMPARE)
    drawn = {row["variant"]: row for row in page.frame("scatter").iter_rows(named=True)}
    listed = {row["variant"]: row for row in page.frame("verdicts").iter_rows(named=True)}
    assert {of for of in CELLS if label(of) in drawn} == set(CELLS) - {GONE}
    for of in CELLS:
        if of == GONE:
            continue
        row, known = drawn[label(of)], run_seeds(of)
        assert row["value"] == pytest.approx(stats.gmean([mse(of, seed) for seed in known]))
        assert row["x"] == pytest.approx(stats.gmean([seconds(of, seed) for seed in known]))
        assert row["n"] == len(known)
        assert row["standing"] == printed[label(of)]["standing"] == listed[label(of)]["standing"]
        assert row["dominated_by"] == printed[label(of)]["dominated_by"]
        assert listed[label(of)]["cost"] == row["x"]


def test_a_training_metric_that_is_called_like_the_evaluation_is_never_meant(root: Path) -> None:
    page = seen(root, COMPARE)
    assert list(page.controls["measure"].options) == ["mse@sigma_f=5,sigma_x=1"]
    with Campaign(root).store as store:
        assert store.final("grid", "mse").filter(pl.col("value") == 99.0).is_empty()
