"""The page Mechanism shows what probes recorded: averages that are right, and a sentence where there is nothing."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import plotly.graph_objects as go
import polars as pl
import pytest
from known_campaign import Line, Planted, open_view, plant, show_slot
from probed_campaign import HEADS, LAYERS, NAMES, SEEDS, STEPS, first, write_probed

from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages.mechanism import MECHANISM
from ablate.dashboards.data.formatting import plain
from ablate.dashboards.figures.canvas import least_width
from ablate.dashboards.figures.probe_curves import differing
from ablate.grid.row_info import header_rows
from ablate.store.analysis.row_labels import PROBES, complete, row_label
from ablate.training.probes import Probe

Look = Callable[..., SlotContent]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("probed") / "probed"
    write_probed(root)
    return root


@pytest.fixture(scope="module")
def view(campaign: Path) -> Iterator[PageView]:
    with open_view(campaign, MECHANISM) as found:
        yield found


@pytest.fixture(scope="module")
def look(view: PageView) -> Look:
    return lambda name, search="": show_slot(view, MECHANISM, name, search)


def figure(shown: SlotContent) -> go.Figure:
    assert shown.figure is not None, shown.message
    return shown.figure


def values(shown: SlotContent, variant: str, **where: Any) -> list[float]:
    found = shown.data.filter(pl.col("variant") == variant, **where)
    return [float(value) for value in found["value"]]


FIRST = "?probe=first_token_weight"


def test_over_training_is_the_mean_over_layers_and_heads_then_seeds_without_failed_trials(look: Look) -> None:
    shown = look("training", FIRST)
    for place, seeds in ((0, SEEDS), (1, SEEDS), (2, (0,))):
        expected = [
            mean(first(place, s, step, layer, h) for s in seeds for layer in range(LAYERS) for h in range(HEADS))
            for step in STEPS
        ]
        assert values(shown, NAMES[place]) == pytest.approx(expected)
    assert shown.data["n"].to_list() == [3, 3, 3, 3, 1, 1]


def test_by_layer_has_a_t_interval_over_seeds(look: Look) -> None:
    shown = look("layers", FIRST)
    by_seed = [mean(first(1, s, STEPS[-1], 1, h) for h in range(HEADS)) for s in SEEDS]
    low = mean(by_seed) - 4.302653 * stdev(by_seed) / math.sqrt(3)
    row = shown.data.row(by_predicate=(pl.col("variant") == "SSA") & (pl.col("layer") == 1), named=True)
    assert (row["value"], row["low"], row["n"]) == (pytest.approx(mean(by_seed)), pytest.approx(low, rel=1e-5), 3)


def test_every_head_has_its_place_in_the_heat_map_of_its_cell(look: Look) -> None:
    shown = look("heads", FIRST)
    maps = [trace for trace in figure(shown).data if isinstance(trace, go.Heatmap)]
    assert len(maps) == 3
    assert least_width(figure(shown)) <= 620  # fits beside another slot
    expected = [[mean(first(1, s, STEPS[-1], y, x) for s in SEEDS) for x in range(HEADS)] for y in range(LAYERS)]
    assert [list(row) for row in maps[1].z] == [pytest.approx(row) for row in expected]
    assert {(trace.zmin, trace.zmax) for trace in maps} == {(maps[0].zmin, maps[0].zmax)}


def test_along_a_coordinate_rows_without_it_do_not_count(look: Look) -> None:
    shown = look("along", FIRST)
    whole = [first(0, s, STEPS[-1], layer, h) for s in SEEDS for layer in range(LAYERS) for h in range(HEADS)]
    assert values(shown, "softmax") == pytest.approx([mean(whole) / query for query in (2, 3, 4)])


def test_a_place_of_the_probe_can_be_chosen(look: Look) -> None:
    assert values(look("layers", "?probe=sink_share"), "SSA") == pytest.approx([0.2, 0.4])
    assert values(look("layers", "?probe=sink_share&at=eps=0.3"), "SSA") == pytest.approx([0.3, 0.6])
    assert "(eps 0.3, position 1)" in figure(look("layers", "?probe=sink_share&at=eps=0.3")).layout.yaxis.title.text


def test_counts_by_bins_are_drawn_along_their_bins_only(look: Look) -> None:
    assert look("along", "?probe=weight_sum_count").figure is not None
    for name in ("training", "layers", "against"):
        assert "counts by bins" in look(name, "?probe=weight_sum_count").message


def test_against_the_measure_has_a_point_per_run_that_is_done_and_their_rank_correlation(look: Look) -> None:
    shown = look("against", FIRST)
    assert shown.data.height == 7
    row = shown.data.row(by_predicate=(pl.col("variant") == "SSA") & (pl.col("seed") == 2), named=True)
    assert row["y"] == pytest.approx(math.exp(-1))
    assert row["x"] == pytest.approx(mean(first(1, 2, 20, la, h) for la in range(LAYERS) for h in range(HEADS)))


def test_values_that_are_no_number_are_left_out_of_averages(look: Look) -> None:
    shown = look("layers", "?probe=holes")
    assert values(shown, "SSA") == [2]
    assert shown.data.filter(pl.col("variant") == "SSA")["n"].to_list() == [2]


def test_chosen_cells_are_shown_alone_and_names_stand_literally(look: Look) -> None:
    shown = look("training", f"{FIRST}&cells=%3Cscript%3E%25%7Bx%7D%3C/script%3E")
    assert set(shown.data["variant"]) == {NAMES[2]}
    assert {trace.name for trace in figure(shown).data if trace.name} == {plain(NAMES[2])}


def test_every_row_of_our_probes_has_words_and_its_unit() -> None:
    ours = [probe for probe in Probe.members().values() if probe.__module__.startswith("ablate.")]
    rows = [row for probe in ours for row in probe.rows if row.per != "file"]
    assert rows
    for row in rows:
        for header in ({}, {"rows": header_rows([complete(row)])}):  # an older plan, and a new one
            title, unit, _ = row_label(header, row.name.lower())
            assert unit == row.unit
            assert title != row.name.lower()
    assert {probe.__name__ for probe in ours if probe.rows[0].per != "file"} == {*PROBES}
    assert row_label({}, "someone.elses") == ("someone.elses", "", None)


def test_a_change_by_a_knock_out_has_no_lower_bound() -> None:
    own, changed = row_label({}, "entropy"), row_label({}, "knockout.gate.entropy")
    assert (own.least, changed.least, changed.unit) == (0.0, None, own.unit)
    assert "change of entropy" in changed.title


def test_the_page_opens_with_the_probe_that_tells_cells_apart_most(tmp_path: Path) -> None:
    numbers = {"apart": (5.0, 0.1), "alike": (0.1, 5.0), "same": (0.0, 0.0)}

    def probes(line: Line) -> list[tuple[str, int | None, int | None, dict[str, float], float]]:
        cell, seed = line["operator"] != "softmax", line["seed"]
        return [(name, 0, h, {}, of * cell + by * seed + h) for name, (of, by) in numbers.items() for h in (0, 1)]

    planted = Planted(lambda _: 1.0, probes=probes)
    with open_view(plant(tmp_path / "one", ["softmax", "SSA"], range(1), planted), MECHANISM) as view:
        alone = show_slot(view, MECHANISM, "training")
    assert alone.answer == ""  # one run says nothing of the noise
    with open_view(plant(tmp_path / "runs", ["softmax", "SSA"], range(3), planted), MECHANISM) as view:
        found = differing(view.store, "grid")
        shown = show_slot(view, MECHANISM, "training")
    assert found["name"].to_list() == ["apart", "alike", "same"]
    shares = []
    for of, by in (numbers["apart"], numbers["alike"]):
        runs = [[of * cell + by * seed + 0.5 for seed in range(3)] for cell in (0, 1)]
        flat = [value for cell in runs for value in cell]
        within = sum((value - mean(cell)) ** 2 for cell in runs for value in cell)
        shares.append(1 - within / sum((value - mean(flat)) ** 2 for value in flat))
    assert found["share"].to_list()[:2] == pytest.approx(shares)
    assert found["share"][2] is None
    assert shown.answer.startswith("Apart differs most between cells: 0.6 (softmax) to 5.6 (SSA); cells explain 100 %")


def test_the_page_prefers_a_probe_that_all_cells_have(tmp_path: Path) -> None:
    def probes(line: Line) -> list[tuple[str, int, int, dict[str, float], float]]:
        place = ["softmax", "SSA", "FoX"].index(line["operator"])
        own = [("number.b", 0, 0, {}, 9.0 * place)] if place else []
        return [("entropy", 0, 0, {}, place + 0.5 * line["seed"]), *own]

    root = plant(tmp_path / "runs", ["softmax", "SSA", "FoX"], range(3), Planted(lambda _: 1.0, probes=probes))
    with open_view(root, MECHANISM) as view:
        shown = show_slot(view, MECHANISM, "training")
    assert shown.answer.startswith("Entropy of attention differs most between cells, of the probes that the most")
    assert "(3 of 3)" in shown.answer
    assert "a mean over layers and heads" in shown.answer


def test_the_interval_of_a_share_stays_between_0_and_1(tmp_path: Path) -> None:
    def probes(line: Line) -> list[tuple[str, int, int, dict[str, float], float]]:
        value = 0.9 if line["seed"] else 0.0
        return [("gate_sparsity", 0, 0, {}, value), ("entropy", 0, 0, {}, value)]

    root = plant(tmp_path / "runs", ["softmax", "SSA"], range(3), Planted(lambda _: 1.0, probes=probes))
    with open_view(root, MECHANISM) as view:
        share, other = (
            show_slot(view, MECHANISM, "training", f"?probe={name}").data for name in ("gate_sparsity", "entropy")
        )
    assert (share["low"].min(), share["high"].max()) == (0.0, 1.0)
    assert other["low"].min() == 0  # an entropy has no greatest value here
    assert other["high"].max() > 1


def test_the_cells_of_the_answer_are_drawn_and_named_beside_a_single_step(tmp_path: Path) -> None:
    """The two extremes of the probe have the worst measure of 12 cells, of which nine fit."""
    operators = ["softmax", *(f"op{i}" for i in range(11))]

    def probes(line: Line) -> list[tuple[str, int, int, dict[str, float], float]]:
        value = {"op9": -50.0, "op10": 50.0}.get(line["operator"], 0.0)
        return [("entropy", 0, 0, {}, value + 0.1 * line["seed"])]

    planted = Planted(lambda line: 1.0 + operators.index(line["operator"]), probes=probes)
    with open_view(plant(tmp_path / "runs", operators, range(3), planted), MECHANISM) as view:
        shown = show_slot(view, MECHANISM, "training")
    assert shown.answer.startswith("Entropy of attention differs most between cells: −49.9 (op9) to 50.1 (op10)")
    assert list(figure(shown).layout.yaxis.ticktext) == ["softmax", *(f"op{i}" for i in range(6)), "op9", "op10"]
    assert len({(trace.marker.color, trace.marker.symbol) for trace in figure(shown).data}) == 9
