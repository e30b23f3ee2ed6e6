"""Overview: every trial is counted once, the noise floor is the store's, and what is left to do is said."""

import math
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from known_campaign import Line, Planted, plant, seen
from synthetic import write_campaign

from ablate.dashboards import write_report
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.navigation import live
from ablate.dashboards.app.pages.overview import OVERVIEW, unknown_steps
from ablate.dashboards.data.formatting import change
from ablate.dashboards.data.grid_context import MOST_ROWS
from ablate.dashboards.figures.states import STATES, shares, states
from ablate.store import Store
from ablate.store.analysis.noise_floor import noise_floor
from ablate.store.analysis.on_check import NONE_LEARNED
from ablate.store.analysis.verdicts import verdicts
from ablate.store.statistics.check import Check
from ablate.store.statistics.power import power

HOSTILE = "<script>%{x}"
OPERATORS = ("softmax", "zeta", "alpha", HOSTILE)
SEEDS = range(5)
STATES_OF = {("alpha", 0): "diverged", ("alpha", 1): "diverged", (HOSTILE, 4): "pending", ("zeta", 2): "killed"}


def value(line: Line) -> float:
    noise = 0.2 * random.Random(f"{line['operator']} {line['seed']}").random()
    return float((0.97 if line["operator"] == HOSTILE else 1.0) * (1 + 0.3 * line["seed"]) * (1 + noise))


def state(line: Line) -> str:
    return STATES_OF.get((line["operator"], line["seed"]), "ok")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("overview") / "runs", OPERATORS, SEEDS, Planted(value, state))


def test_every_trial_has_its_square_with_a_sign_and_its_reason(root: Path) -> None:
    shown = seen(root, OVERVIEW, "", ["progress"]).slots["progress"]
    assert shown.data.height == 20
    assert shown.data["state"].value_counts().sort("state").rows() == [("done", 16), ("failed", 3), ("pending", 1)]
    assert shown.figure is not None
    drawn = {trace.legendgroup: trace for trace in shown.figure.data}
    assert {name: len(trace.x) for name, trace in drawn.items()} == {"done": 16, "failed": 3, "pending": 1}
    assert set(drawn["failed"].text) == {STATES["failed"].sign}
    cells = list(OPERATORS)
    places = set(zip(drawn["failed"].x, drawn["failed"].y, strict=True))
    assert places == {(seed, cells.index(operator)) for (operator, seed), how in STATES_OF.items() if how != "pending"}
    assert any("failed: killed" in told for told in drawn["failed"].customdata)
    assert "16 of 20 trials done, 3 failed; verdicts are preliminary." in shown.caption
    assert "<script>" not in shown.figure.to_json()
    assert [key.name for key in shown.legend] == ["✓ done", "✗ failed", "· to do"]


def test_verdicts_are_the_store_s_by_effect(root: Path) -> None:
    frame = seen(root, OVERVIEW, "", ["verdicts"]).frame("verdicts")
    with Store.open(root) as store:
        found = verdicts(store, "grid")
    assert sorted(frame["reason"]) == sorted(found["reason"])
    assert sorted(frame["pairs"]) == ["3 of 5", "4 of 5", "4 of 5"]
    best = found.sort("difference", nulls_last=True)["label"].to_list()
    assert frame["variant"].to_list() == best


def test_the_noise_floor_is_found_in_four_of_five_repetitions(root: Path) -> None:
    with Store.open(root) as store:
        found = noise_floor(store, "grid")
    # the spread of all three comparisons is known; the level is that of the hardest Holm step
    assert (found.planned, found.family, found.comparisons) == (5, 3, 3)
    logs = {
        op: {s: math.log(value({"operator": op, "seed": s})) for s in SEEDS if (op, s) not in STATES_OF}
        for op in OPERATORS
    }
    spreads = []
    for operator in OPERATORS[1:]:
        shared = sorted(logs[operator].keys() & logs["softmax"].keys())
        spreads.append(float(np.std([logs[operator][s] - logs["softmax"][s] for s in shared], ddof=1)))
    row = found.frame.filter(pl.col("seeds") == 5).row(0, named=True)
    for smallest, sd in (
        (row["low"], min(spreads)),
        (row["smallest"], sorted(spreads)[1]),
        (row["high"], max(spreads)),
    ):
        reached = power(np.array(smallest), np.array(sd), np.array(5.0), alpha=0.05 / 3)
        assert float(reached) == pytest.approx(0.8, abs=1e-6)
    assert found.frame["smallest"].to_list() == sorted(found.frame["smallest"].to_list(), reverse=True)
    shown = seen(root, OVERVIEW, "", ["noise"]).slots["noise"]
    assert change(row["smallest"], "log").removeprefix("+") in shown.caption
    assert "5, planned" in shown.data["paired seeds"].to_list()


def test_what_to_do_next_names_commands_for_failures_and_what_trials_are_awaited_for(root: Path) -> None:
    frame = seen(root, OVERVIEW, "", ["next"]).frame("next")
    commands = [how for how in frame["how"] if how.startswith("ablate retry")]
    assert commands == [f"ablate retry --failed grid=grid reason=killed --campaign {root}"]
    assert "train 1 outstanding trial" in frame["what"].to_list()
    assert not frame["what"].str.contains("seeds|verdict").any()  # they are not final
    failures = seen(root, OVERVIEW, "", ["failures"]).slots["failures"]
    assert "3 failed trials of 2 kinds (diverged 2, killed 1)" in failures.caption
    assert failures.data.filter(reason="diverged")["cells"].to_list() == ["alpha"]


def test_many_cells_stand_in_groups_that_count_every_trial_once(tmp_path: Path) -> None:
    widths = list(range(MOST_ROWS))
    lines = {("softmax", 0): "diverged"}

    def planted_state(line: Line) -> str:
        if line["axes"]["width"] == 3 and (line["operator"], line["seed"]) in lines:
            return "diverged"
        return "pending" if line["seed"] == 1 and line["axes"]["width"] < 4 else "ok"

    factors = {"width": widths}
    root = plant(tmp_path / "runs", ["softmax", "zeta"], [0, 1], Planted(value, planted_state), factors=factors)
    shown = seen(root, OVERVIEW, "", ["progress"]).slots["progress"]
    assert shown.data.height == 2 * len(widths) * 2
    with Store.open(root) as store:
        cells = store.sql("SELECT DISTINCT cell FROM grid_trial")["cell"].to_list()
        grouped = shares(store, "grid", states(store, "grid", cells))
    assert grouped.by == "operator"
    rows = {(row["y"], row["x"]): row for row in grouped.frame.iter_rows(named=True)}
    assert rows["softmax", 0]["text"] == f"✓ {len(widths) - 1} ✗ 1"
    assert rows["zeta", 1]["note"] == f"{len(widths) - 4} done, 4 to do"
    assert rows["zeta", 1]["value"] == pytest.approx(1 - 4 / len(widths))


def test_files_in_quarantine_are_listed(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), steps=4, sigma_f=(5,), sigma_x=(1,))
    broken = next((root / "spool").rglob("*-item.*.parquet"))
    broken.write_bytes(b"torn" + broken.read_bytes()[4:])
    (root / "store" / "live.duckdb").unlink(missing_ok=True)
    for snapshot in (root / "store").glob("*.duckdb*"):
        snapshot.unlink()
    shown = seen(root, OVERVIEW, "", ["left-out"]).slots["left-out"]
    assert shown.data["file"].to_list() == [broken.name]


def test_lost_lines_of_a_plan_are_said_on_every_page_and_in_the_report(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    plan = write_campaign(root, operators=("softmax", "SSA"), seeds=range(5), steps=4).layout.grid_trials("quickstart")
    campaigns = Campaigns([root])
    campaigns.ingest()
    assert campaigns.describe("runs").warnings == []
    plan.write_bytes(b"".join(plan.read_bytes().splitlines(keepends=True)[:7]))
    campaigns.ingest()
    said = "plan of quickstart has 10 trials, and 7 can be read"
    assert any(said in each for each in campaigns.describe("runs").warnings)
    assert "Incomplete results" in str(live(campaigns.describe("runs"), "runs"))
    slots, page = seen(root, OVERVIEW).slots, write_report(root).read_text(encoding="utf-8")
    assert said in slots["left-out"].message
    assert said in page
    assert "7 of 10 trials done" in slots["progress"].caption
    assert "7 of 10 trials done" in page


UNSETTLED = {("zeta", 2): "running", ("alpha", 1): "pending"}


@pytest.fixture(scope="module")
def unsettled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rates that are compared by odds; one run is on, one waits, and two have ended with no number."""

    def plant_value(line: Line) -> float:
        if line["operator"] == "alpha" and line["seed"] > 2:
            return math.nan if line["seed"] == 3 else math.inf
        return value(line) / 4

    root = tmp_path_factory.mktemp("unsettled") / "runs"
    planned = Planted(plant_value, lambda line: UNSETTLED.get((line["operator"], line["seed"]), "ok"))
    return plant(root, OPERATORS, SEEDS, planned, measure={"scale": "logit"})


def test_a_value_that_is_no_number_is_no_failure_anywhere(unsettled: Path) -> None:
    found = seen(unsettled, OVERVIEW)
    shown = found.slots["progress"]
    assert shown.caption.startswith("18 of 20 trials done, 1 running; verdicts are preliminary.")
    assert "2 trials ended with mse" in shown.caption
    lost = shown.data.filter(pl.col("state") == "not finite")
    assert lost.select("cell", "seed", "reason").rows() == [("alpha", 3, "mse NaN"), ("alpha", 4, "mse inf")]
    assert "(no finite value 2)" in found.slots["failures"].caption
    assert "failed" not in shown.caption + found.slots["failures"].caption
    assert found.frame("failures")["example"].to_list() == lost["trial"].to_list()
    with Store.open(unsettled) as store:
        reason = verdicts(store, "grid").filter(pl.col("label") == "alpha")["reason"].item()
    assert "2 finished runs only here" in reason  # Compare counts the same


def test_running_and_waiting_trials_are_steps(unsettled: Path) -> None:
    steps = set(seen(unsettled, OVERVIEW, "", ["next"]).frame("next")["how"])
    assert {"ablate status --watch", "ablate run SPEC"} <= steps


@pytest.mark.parametrize("seeds", [2, 3])
def test_more_seeds_are_the_remedy_for_too_few_pairs_alone(tmp_path: Path, seeds: int) -> None:
    def state(line: Line) -> str:
        return "error" if line["seed"] == 0 and (seeds == 3 or line["operator"] == "zeta") else "ok"

    found = seen(plant(tmp_path / "runs", OPERATORS, range(seeds), Planted(value, state)), OVERVIEW).frame("next")
    steps = found.filter(pl.col("what").str.contains("without a verdict"))
    remedies = {why.partition("; ")[0]: how.partition(" ")[0] for why, how in steps.select("why", "how").rows()}
    if seeds == 3:
        assert remedies == {"2 pairs of 3 planned": "more"}
    else:
        assert remedies.pop("2 pairs of 2 planned") == "more"
        assert list(remedies.values()) == [""]


def test_knock_outs_are_no_remedy_where_no_run_learned() -> None:
    context: Any = SimpleNamespace(header={"base": {}})
    checks = {"a": [Check("on", "unknown", f"{NONE_LEARNED} here")], "b": [Check("on", "unknown", "not measured here")]}
    steps = {why: (what, how) for what, why, how in unknown_steps(context, pl.DataFrame({"cell": ["a", "b"]}), checks)}
    assert {what for what, _ in steps.values()} == {"answer the check on of 1 claim"}
    assert ["knockout" in how for _, how in steps.values()] == [NONE_LEARNED not in why for why in steps]


def test_an_axis_that_matters_comes_first_where_no_variant_is_decided(tmp_path: Path) -> None:
    factors = {"depth": [1, 2], "width": [1, 2]}
    effect = lambda axes: -0.12 * (axes["depth"] == 2)  # noqa: E731
    operators = ("softmax", "SSA", "Integral")
    write_campaign(
        tmp_path, operators=operators, factors=factors, seeds=range(5), effect=effect, noise=0.1, steps=2, sigma_f=(5,)
    )
    shown = seen(tmp_path, OVERVIEW, "", ["differences"]).slots["differences"]
    assert shown.answer.startswith("One compared axis matters: depth (2 against 1")
    assert shown.figure is not None
    ticks = shown.figure.layout.yaxis.ticktext  # the axes, each with its levels, not 11 undecided cells
    assert ticks[2:] == ("<b>depth, against 1</b>", "2", "<b>operator, against softmax</b>", *ticks[5:])
    assert {*ticks[5:7]} == {"SSA", "Integral"}
    assert all(trace.customdata is None for trace in shown.figure.data)  # a click opens no cell


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve cells, one better than the baseline, the others noise; the greatest noise is far from proven."""
    root = tmp_path_factory.mktemp("undecided") / "c"
    effect = lambda axes: -2.5 * (axes["operator"] == "SSA" and axes["depth"] == 2)  # noqa: E731
    factors = {"depth": [1, 2, 3, 4]}
    operators = ("softmax", "SSA", "Integral")
    write_campaign(
        root, operators=operators, factors=factors, seeds=range(3), effect=effect, noise=0.15, steps=2, sigma_f=(5,)
    )
    return root


def test_a_mostly_undecided_grid_begins_with_axes_and_with_what_more_seeds_decide(undecided: Path) -> None:
    found = seen(undecided, OVERVIEW, "", ["differences", "verdicts"])
    with Store.open(undecided) as store:
        rows = verdicts(store, "quickstart")
    counts = dict(rows["verdict"].value_counts().iter_rows())
    assert counts["better"] == 1
    assert counts["undecided"] > 6
    axes, said = found.slots["differences"].answer.split("\n")
    assert "depth" in axes
    assert "SSA · 2" in said
    noise = rows.filter(verdict="undecided").sort(pl.col("difference").abs())["label"][-1]
    assert noise not in axes + said
    assert f"{counts['undecided']} of 11 variants" in said
    needed = rows.filter(verdict="undecided")["seeds_to_decide"]
    for seeds in (5, 10, 20, 50):
        if found_by := int((needed <= seeds).sum()):
            assert re.search(rf"\b{seeds} seeds (would decide )?{found_by}\b", said)
    table = found.frame("verdicts")
    listed = table["seeds to decide"].to_list()
    assert table["variant"][0] == "SSA · 2"
    assert [n for n in listed if n is not None] == sorted(needed.drop_nulls())


def test_seeds_to_decide_reach_eighty_per_cent_at_the_observed_difference(undecided: Path) -> None:
    with Store.open(undecided) as store:
        rows = verdicts(store, "quickstart").filter(verdict="undecided").drop_nulls("seeds_to_decide")
        values = store.final("quickstart", "mse", {"sigma_f": 5.0, "sigma_x": 1.0}).select("cell", "seed", "value")
    base = values.filter(cell=rows["baseline"][0]).sort("seed")["value"].log().to_numpy()
    for cell, n, family in rows.select("cell", "seeds_to_decide", "family").iter_rows():
        apart = values.filter(cell=cell).sort("seed")["value"].log().to_numpy() - base
        mean, sd = abs(apart.mean()), apart.std(ddof=1)
        nearest = max(mean, math.log(1.05) - mean)  # not zero, or inside the band, whichever is easier to show
        reached = [float(power(np.array(nearest), sd, np.array(float(k)), alpha=0.05 / family)) for k in (n - 1, n)]
        assert reached[0] < 0.8 or n == 3
        assert reached[1] >= 0.8
