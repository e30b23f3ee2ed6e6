"""Compare: differences, pairs and wins equal plain Python's; any measure, any baseline; a table for papers."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

import polars as pl
import pytest
from dashboard_site import ServeSite
from known_campaign import Line, Planted, Seen, plant, seen
from playwright.sync_api import Page

from ablate.dashboards.app.pages.compare import COMPARE
from ablate.store import Store
from ablate.store.analysis.explain_verdict import why

HOSTILE = "<script>%{x}"
OPERATORS = ("softmax", "zeta", "alpha", HOSTILE)
SEEDS = range(5)
MSE = {"softmax": 1.0, "zeta": 0.5, "alpha": 1.1, HOSTILE: 0.98, "apart": 1.2, "broken": 0.9}


def value(line: Line) -> float:
    noise = 0.02 * ((line["seed"] * 7 + 3 * len(line["operator"])) % 5)
    return float(MSE[line["operator"]] * (1 + 0.3 * line["seed"]) * (1 + noise))


def state(line: Line) -> str:
    return "diverged" if (line["operator"], line["seed"]) == ("alpha", 1) else "ok"


def accuracy(line: Line) -> dict[str, float]:
    return {
        "accuracy": 0.9
        - 0.1 * OPERATORS.index(line["operator"])
        + 0.01 * (3 * line["seed"] * (1 + len(line["operator"])) % 4)
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = Planted(value, state, more=accuracy)
    return plant(tmp_path_factory.mktemp("compare") / "runs", OPERATORS, SEEDS, planted)


@pytest.fixture(scope="module")
def usual(root: Path) -> Seen:
    return seen(root, COMPARE)


def mse(operator: str, seed: int) -> float:
    return value({"operator": operator, "seed": seed})


def test_another_measure_has_its_own_direction_and_no_margin(root: Path) -> None:
    lower = seen(root, COMPARE, "?measure=accuracy&better=lower")
    higher = seen(root, COMPARE, "?measure=accuracy")
    assert set(lower.frame("verdicts")["verdict"]) - {"– no verdict"} == {"▲ better", "baseline"}
    assert set(higher.frame("verdicts")["verdict"]) - {"– no verdict"} == {"▼ worse", "baseline"}
    row = higher.frame("differences").filter(pl.col("variant") == "zeta").row(0, named=True)
    own, base = (
        [accuracy({"operator": operator, "seed": seed})["accuracy"] for seed in SEEDS]
        for operator in ("zeta", "softmax")
    )
    assert row["difference"] == pytest.approx(fmean(own) - fmean(base))  # plain, not a ratio


def test_any_cell_can_be_the_baseline_by_its_label(root: Path) -> None:
    found = seen(root, COMPARE, "?baseline=zeta")
    frame = found.frame("differences")
    assert sorted(frame["variant"]) == sorted(["softmax", "alpha", HOSTILE])
    assert frame["difference"].is_sorted()
    soft = frame.filter(pl.col("variant") == "softmax")["difference"][0]
    assert soft == pytest.approx(-fmean(math.log(mse("zeta", seed) / mse("softmax", seed)) for seed in SEEDS))


def test_why_says_what_the_store_says(root: Path) -> None:
    shown = seen(root, COMPARE, "?cell=alpha", ["why"]).slots["why"]
    topics = dict(shown.data.iter_rows())
    with Store.open(root) as store:
        row = why(store, "grid", "alpha")
    assert row["reason"] in topics["verdict"]
    assert topics["failures"].startswith("1 only here")
    assert topics["method"] == "paired t, 4 pairs of 5 planned"
    assert {"family", "assumptions", "code", "error bars"} <= topics.keys()


def test_seeds_are_joined_where_both_have_a_value(root: Path) -> None:
    shown = seen(root, COMPARE, "?cell=alpha", ["paired"]).slots["paired"]
    rows = {row["seed"]: row for row in shown.data.iter_rows(named=True)}
    assert rows[1]["value"] is None
    assert rows[1]["difference"] is None
    assert rows[2]["difference"] == pytest.approx(math.log(mse("alpha", 2) / mse("softmax", 2)))
    assert shown.figure is not None
    lines = [trace for trace in shown.figure.data if trace.mode == "lines"]
    assert len(lines) == 4
    assert {trace.legendgroup for trace in lines} <= {"gain", "loss"}
    worse = [seed for seed in SEEDS if seed != 1 and mse("alpha", seed) >= mse("softmax", seed)]
    assert sum(trace.legendgroup == "loss" for trace in lines) == len(worse)
    assert "1 seed with a value of only one of the two" in shown.caption


def test_wins_are_shares_of_shared_seeds(usual: Seen) -> None:
    frame = usual.frame("wins")
    assert frame.height == 16
    for one in OPERATORS:
        for other in OPERATORS:
            row = frame.filter(pl.col("cell") == one, pl.col("against") == other).row(0, named=True)
            shared = [seed for seed in SEEDS if seed != 1 or "alpha" not in (one, other)]
            if one == other:
                assert (row["won"], row["n"]) == (None, 0)
            else:
                share = fmean(float(mse(one, seed) < mse(other, seed)) for seed in shared)
                assert (row["won"], row["n"]) == (pytest.approx(share), len(shared))


N = 60
"""Cells of a large grid."""


def large(line: Line) -> float:
    return 1.0 + 0.01 * ((line["axes"]["variant"] * 37 + line["seed"] * 11) % 101)


def difference(line: Line) -> Mapping[str, float]:
    """A measurement that is called as a column is; the later a cell, the better."""
    return {"difference": 100.0 - line["axes"]["variant"] + 0.1 * line["seed"]}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = Planted(large, more=difference)
    factors = {"variant": list(range(N))}  # as a column is called
    return plant(tmp_path_factory.mktemp("many") / "runs", ["softmax"], range(3), planted, factors=factors)


def test_a_forest_plot_has_the_best_rows_and_those_of_smallest_p(many: Path) -> None:
    usual = seen(many, COMPARE)

    def value(variant: int, seed: int) -> float:
        return math.log(large({"axes": {"variant": variant}, "seed": seed}))

    changes = {f"softmax · {n}": [value(n, seed) - value(0, seed) for seed in range(3)] for n in range(1, N)}
    best = sorted(changes, key=lambda cell: fmean(changes[cell]))[:16]
    sure = sorted(changes, key=lambda cell: stdev(changes[cell]) / abs(fmean(changes[cell])))[:16]
    drawn = usual.frame("differences")
    assert drawn.height == 32
    assert {*best, *sure} <= {*drawn["variant"]}
    assert {*sure} - {*best}
    assert usual.frame("verdicts").height == N


def test_a_matrix_of_the_best_is_of_those_that_the_page_judges_best(many: Path) -> None:
    name = "softmax · {}".format
    shown = seen(many, COMPARE, "?measure=difference&baseline=softmax%20%C2%B7%207", ["wins"]).slots["wins"]
    assert set(shown.data["cell"]) == {name(n) for n in (7, *range(N - 31, N))}
    best = shown.data.filter(pl.col("cell") == name(N - 1), pl.col("against") == name(7)).row(0, named=True)
    assert (best["won"], best["n"], best["planned"]) == (1.0, 3, 3)


UNEVEN = ("softmax", "apart", "broken")


def uneven(line: Line) -> str:
    """Plant "apart", which shares only seed 3 with softmax, and "broken", which fails on seeds 1 and 2."""
    operator, seed = line["operator"], line["seed"]
    if operator == "apart":
        return "ok" if seed in (3, 4, 5, 6) else "pending"
    failed = seed == 1 or (operator == "broken" and seed == 2)
    return "pending" if seed > 3 else "diverged" if failed else "ok"


def test_runs_that_cannot_be_paired_are_said_to_be_unpaired(tmp_path: Path) -> None:
    def value(line: Line) -> float:
        return 0.2 + 0.01 * (line["seed"] * (2 + len(line["operator"])) % 7)

    def state(line: Line) -> str:
        return uneven(line) if line["operator"] == "apart" else "pending" if line["seed"] > 3 else "ok"

    root = plant(tmp_path / "runs", UNEVEN, range(7), Planted(value, state), measure={"scale": "logit"})
    found = seen(root, COMPARE, "?cell=apart")
    assert found.frame("verdicts")["pairs"].to_list() == ["unpaired: 4 runs against 4", "4 of 7", None]
    figure = found.slots["differences"].figure
    assert figure is not None
    apart, paired = (trace.hovertemplate for trace in figure.data if trace.mode == "markers")
    assert "unpaired: 4 runs against 4" in apart
    assert "4 pairs" in paired
    assert [", unpaired" in tick for tick in figure.layout.yaxis.ticktext] == [True, False]


def test_seeds_on_which_one_of_two_failed_are_counted_and_marked(tmp_path: Path) -> None:
    def state(line: Line) -> str:
        ended = (line["operator"], line["seed"]) != ("lost later", 6)
        return uneven(line) if line["operator"] in UNEVEN else "diverged" if ended else "pending"

    operators = (*UNEVEN, "lost", "lost too", "lost later")
    root = plant(tmp_path / "runs", operators, range(7), Planted(value, state))
    shown = seen(root, COMPARE, "", ["wins"]).slots["wins"]
    counts = {(row["cell"], row["against"]): (row["planned"], row["n"], row["unusable"])
              for row in shown.data.iter_rows(named=True)}  # fmt: skip
    assert counts["broken", "softmax"] == counts["softmax", "broken"] == (7, 2, 1)
    assert counts["apart", "softmax"] == (7, 1, 0)
    assert counts["broken", "apart"] == (7, 1, 0)
    assert shown.figure is not None
    told = [text for row in shown.figure.data[0].text for text in row]
    assert sum(text.partition("<br>")[0].endswith("*") for text in told) == 2
    assert any(re.search(r"2 of 7 planned seeds; on 1 .*; on 1 both", text) for text in told)
    assert sum(text.startswith("no finite value: both on every seed<br>0 of 7 planned seeds") for text in told) == 2
    assert sum(text.startswith("no finite value: both on 6 of 7 planned seeds<br>") for text in told) == 4


@pytest.mark.browser
def test_a_click_on_a_difference_shows_why(page: Page, root: Path, serve_site: ServeSite) -> None:
    with serve_site([root]) as site:
        page.goto(f"{site.url}/runs/compare")
        page.wait_for_selector("#slot-differences .scatterlayer .point")
        assert "alpha" not in page.locator("#slot-why .caption").inner_text()
        page.locator("#slot-differences .scatterlayer .point").nth(2).click(force=True)
        page.wait_for_function(
            "() => document.querySelector('#slot-why .caption').innerText.startsWith('alpha against')"
        )
        assert "cell=" in page.url


@pytest.mark.browser
def test_slots_side_by_side_stay_so_on_paper(page: Page, root: Path, serve_site: ServeSite) -> None:
    with serve_site([root]) as site:
        page.goto(f"{site.url}/{root.name}/compare")
        page.wait_for_selector("#slot-differences .main-svg")
        page.wait_for_selector("#slot-verdicts .ag-row")
        page.emulate_media(media="print")
        place = "(name) => { const { x, y } = document.querySelector(name).getBoundingClientRect(); return [x, y]; }"
        (left, top), (right, beside) = (page.evaluate(place, f"#slot-{name}") for name in ("paired", "why"))
        heading, row = (page.locator(f"#slot-verdicts {part}").first.bounding_box() for part in ("> h2", ".ag-row"))
        page.emulate_media(media="screen")
        assert heading is not None
        assert row is not None
        # a heading goes on paper with the first row of its table
        assert heading["y"] + heading["height"] >= row["y"] + row["height"]
        assert left < right
        assert top == pytest.approx(beside, abs=5)
