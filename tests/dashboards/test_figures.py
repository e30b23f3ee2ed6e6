"""The data of every figure against hand-computed values; every drawing at least draws."""

import json
import math
from collections.abc import Callable
from html import unescape
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from synthetic import publish_grid, write_campaign

from dashboards.data.captions import ICONS, mark_verdict
from dashboards.data.formatting import plain
from dashboards.data.grid_context import GridContext, grid_context
from dashboards.data.seed_averages import Scale
from dashboards.figures import effects, forest, numbers, shift, states, training
from dashboards.figures.canvas import (
    break_name,
    canvas,
    is_cut,
    log_ticks,
    one_line,
    ratio_ticks,
    tick_text,
    value_axis,
)
from dashboards.theme.styles import operator_styles
from store import Store
from store.analysis.verdicts import GridMeasure, verdicts

MEASURE = GridMeasure("mse", {"sigma_f": 5.0, "sigma_x": 1.0})
HALF = 4.302653 * math.log(2) / math.sqrt(3)  # half the t interval of log(1, 2, 4)
WORDS = {word: mark_verdict(word) for word in ICONS}
PAIRED = {"pairs": 3, "method": "paired t", "runs": 3, "baseline_runs": 3}


@pytest.fixture
def about(known: Store) -> GridContext:
    return grid_context(known, "known", operator_styles(["softmax", "SSA"]))


def keys(about: GridContext) -> list[str]:
    return [cell.cell for cell in about.cells]


def check_json(figure: go.Figure) -> go.Figure:
    """The figure, once it is known to be JSON that a page can hold."""
    assert json.loads(figure.to_json())["layout"]["height"] > 100
    return figure


def test_error_by_shift_is_the_geometric_mean_over_seeds_at_the_measures_other_coordinates(about: GridContext) -> None:
    found = shift.error_by_shift(about.store, "known", MEASURE, "sigma_f", keys(about))
    assert found["x"].to_list() == [1, 5, 9, 1, 5, 9]
    assert found["value"].to_list() == pytest.approx([2, 10, 18, 1, 5, 9])
    assert found["high"].to_list() == pytest.approx(
        [value * math.exp(HALF) for value in (2, 10, 18, 1, 5, 9)], rel=1e-5
    )
    assert found["n"].unique().to_list() == [3]
    figure = check_json(shift.draw_error_by_shift(found, about.look, MEASURE, "sigma_f", "mse"))
    assert [trace.legendgroup for trace in figure.data] == [key for key in keys(about) for _ in range(2)]


def test_change_by_shift_is_the_paired_log_ratio(opened: Callable[..., Store]) -> None:
    base = {("softmax", seed): 2.0**seed for seed in range(3)}
    store = opened(base | {("SSA", seed): 2.0 ** (2 * seed) for seed in range(3)})  # ratios 1, 2, 4
    about = grid_context(store, "known", operator_styles(["softmax", "SSA"]))
    found = shift.change_by_shift(store, "known", MEASURE, "sigma_f", keys(about))
    assert set(found["cell"]) == set(keys(about)) - {about.baseline}
    assert found["value"].to_list() == pytest.approx([math.log(2)] * 3)
    assert found["high"].to_list() == pytest.approx([math.log(2) + HALF] * 3, rel=1e-5)
    figure = check_json(shift.draw_change_by_shift(found, about.look, MEASURE, "sigma_f"))
    assert figure.data[1].text[0].startswith("× 2<br>")


@pytest.mark.parametrize("changes", [[0.9, 1.1], [-1.1, -0.9], [0.7, 0.7], [0.0, 0.0]])
def test_an_axis_of_changes_has_zero_and_what_counts_as_equal(about: GridContext, changes: list[float]) -> None:
    found = pl.DataFrame({"cell": about.baseline, "x": [1.0, 2.0], "value": changes, "low": changes, "high": changes})
    figure = shift.draw_change_by_shift(found.with_columns(n=3), about.look, MEASURE, "x")
    low, high = figure.layout.yaxis.range
    assert low < -math.log(1.05) < 0 < math.log(1.05) < high
    assert low <= min(changes) <= max(changes) <= high


def test_the_coordinates_of_an_evaluation_are_all_its_values_in_order(known: Store) -> None:
    assert shift.coordinates(known, "known", "mse") == {"sigma_f": [1, 5, 9], "sigma_x": [1, 2]}
    assert shift.coordinates(known, "known", "loss") == {}


def test_the_map_has_the_value_and_the_paired_change_from_the_baseline(about: GridContext) -> None:
    found = shift.shift_map(about.store, "known", MEASURE, ("sigma_f", "sigma_x"), keys(about))
    assert found.filter(pl.col("cell") == about.baseline)["value"].to_list() == pytest.approx([2, 10, 18, 4, 20, 36])
    assert found.filter(pl.col("cell") == about.baseline)["change"].null_count() == 6
    other = found.filter(pl.col("cell") != about.baseline)
    assert other["change"].to_list() == pytest.approx([-math.log(2)] * 6)
    assert shift.ends(found, "change", log=True) == pytest.approx((-math.log(2), math.log(2)))
    assert shift.ends(found, "value", log=True) == pytest.approx((0, math.log10(36)))
    figure = check_json(shift.draw_shift_map(other, MEASURE, ("sigma_f", "sigma_x"), (-1, 1), "change"))
    assert figure.data[0].x == ("1", "5", "9")
    assert figure.data[0].text[0][0] == "÷ 2"


def test_a_map_with_a_missing_corner_has_a_hole_there(about: GridContext) -> None:
    found = pl.DataFrame({"x": [1.0, 2.0, 1.0], "y": [1.0, 1.0, 2.0], "value": [1.0, 10.0, 100.0]})
    figure = check_json(shift.draw_shift_map(found, MEASURE, ("a", "b"), (0, 2), "value"))
    assert [list(row) for row in figure.data[0].z] == [[0, 1], [2, None]]


@pytest.mark.parametrize(("n", "texts"), [(3, 9), (10, 0)])
def test_a_map_in_a_narrow_panel_has_no_texts_that_overlap(n: int, texts: int) -> None:
    found = pl.DataFrame([(x, y, -0.2) for x in range(n) for y in range(3)], schema=["x", "y", "change"], orient="row")
    figure = check_json(shift.draw_shift_map(found, MEASURE, ("a", "b"), (-1, 1), "change"))
    written = [text for trace in figure.select_traces({"type": "scatter", "mode": "text"}) for text in trace.text]
    assert len(written) == texts


def test_curves_average_buckets_of_steps_then_seeds(opened: Callable[..., Store]) -> None:
    store = opened({("softmax", 0): 1.0, ("softmax", 1): 4.0}, steps=6)
    about = grid_context(store, "known", operator_styles(["softmax"]))
    found = training.curves(store, "known", "loss", keys(about), buckets=3)
    assert found.width == 2
    assert found.frame["step"].to_list() == [0, 2, 4]
    # mean of steps 1 and 2, of 3 and 4, of 5 and 6; times the geometric mean of 1 and 4
    assert found.frame["value"].to_list() == pytest.approx([1.5 * 2, 3.5 * 2, 5.5 * 2])
    check_json(training.draw_curves(found, about.look, title="loss"))


def test_buckets_begin_at_the_first_step_and_the_last_one_is_never_short(opened: Callable[..., Store]) -> None:
    store = opened({("softmax", 0): 1.0}, steps=7, first=1)  # steps 1..7 with losses 1..7
    found = training.curves(
        store, "known", "loss", keys(grid_context(store, "known", operator_styles(["softmax"]))), buckets=4
    )
    assert found.width == 2
    assert found.frame["step"].to_list() == [1, 3, 5]
    assert found.frame["value"].to_list() == pytest.approx([1.5, 3.5, 6])


def test_curves_leave_failed_trials_out_and_n_says_so(tmp_path: Path) -> None:
    who = {("SSA", 1): "error", ("SSA", 2): "diverged"}
    write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=range(4), failed=who, steps=8)
    with Store.open(tmp_path / "c") as store:
        about = grid_context(store, "quickstart", operator_styles(["softmax", "SSA"]))
        found = training.curves(store, "quickstart", "loss", keys(about)).frame
    counts = {cell: rows["n"].unique().to_list() for (cell,), rows in found.group_by("cell")}
    assert [counts[cell] for cell in keys(about)] == [[4], [2]]


def test_curves_are_not_averaged_where_there_are_few_steps(about: GridContext) -> None:
    found = training.curves(about.store, "known", "loss", keys(about))
    assert found.width == 1
    assert found.frame.filter(pl.col("cell") == about.baseline)["value"].to_list() == pytest.approx([2, 4, 6, 8])


def test_learned_numbers_keep_layers_and_heads_apart(about: GridContext) -> None:
    found = numbers.numbers(about.store, "known", [about.baseline])
    assert found.select("name", "layer", "head").rows() == [("n", l, h) for l in (0, 1) for h in (0, 1)]
    assert found["value"].to_list() == pytest.approx([1, 11, 2, 12])  # layer + 10 head + mean seed
    check_json(numbers.draw_numbers(found, about.look))


def test_heads_of_a_layer_stand_apart_and_inside_their_layer(about: GridContext) -> None:
    found = numbers.numbers(about.store, "known", keys(about))
    figure = check_json(numbers.draw_numbers(found, about.look))
    places = sorted(x for trace in figure.data for x in trace.x)
    assert len(set(places)) == 8
    assert {round(x) for x in places} == {0, 1}


def test_differences_keep_the_order_of_the_table_until_the_least_likely_are_chosen(about: GridContext) -> None:
    frame = pl.DataFrame(
        {
            "cell": list("abcd"),
            "difference": [0.1, None, -0.5, 0.0],
            "low": [0.0, None, -0.6, -0.1],
            "high": [0.2, None, -0.4, 0.1],
            **PAIRED,
            "verdict": ["worse", "no verdict", "better", "undecided"],
            "p": [0.02, None, 0.01, 0.9],
        }
    )
    assert forest.differences(frame, MEASURE)["cell"].to_list() == ["a", "b", "c", "d"]
    assert forest.differences(frame, MEASURE, most=2)["cell"].to_list() == ["c", "a"]
    assert forest.differences(frame, MEASURE, most=3)["cell"].to_list() == ["c", "d", "a"]
    higher = forest.differences(frame, MEASURE._replace(better="higher"), most=3)
    assert higher["cell"].to_list() == ["a", "d", "c"]


def test_the_forest_plot_shows_the_rope_and_a_row_without_a_difference(about: GridContext) -> None:
    found = forest.differences(verdicts(about.store, "known"), MEASURE)
    figure = check_json(forest.draw_differences(found, about.look, MEASURE, WORDS))
    assert figure.layout.shapes[0].x1 == pytest.approx(math.log(1.05))
    assert figure.data[0].x[0] == pytest.approx(-math.log(2))
    empty = found.with_columns(difference=None, low=None, high=None)
    assert not check_json(forest.draw_differences(empty, about.look, MEASURE, WORDS)).data


def test_one_huge_interval_does_not_flatten_the_others(about: GridContext) -> None:
    frame = pl.DataFrame(
        {"cell": keys(about), "difference": [-0.5, 0.1], "low": [-80.0, 0.0], "high": [79.0, 0.2], **PAIRED}
    ).with_columns(verdict=pl.lit("undecided"))
    figure = check_json(forest.draw_differences(frame, about.look, MEASURE, WORDS))
    assert figure.layout.xaxis.range[1] < 2
    assert forest.is_cut(frame, MEASURE)


def test_effects_of_axes_that_move_together_are_estimated_as_one(tmp_path: Path) -> None:
    shifts = {"narrow": 0.0, "wide": 0.4}
    campaign = write_campaign(
        tmp_path / "c",
        operators=("softmax",),
        factors={"size": ("narrow", "wide")},
        effect=lambda axes: shifts[axes["size"]],
        noise=0.0,
        steps=4,
    )
    twin = {"path": "task.twin", "name": "twin", "labels": ["narrow", "wide"]}
    header = campaign.header | {"axes": [*campaign.header["axes"], twin]}
    lines = [line | {"axes": line["axes"] | {"twin": line["axes"]["size"]}} for line in campaign.lines]
    publish_grid(campaign.layout, header, lines)
    with Store.open(tmp_path / "c") as store:
        found = effects.effects(store, "quickstart", MEASURE)
    assert found.select("factor", "level").rows() == [("size = twin", "narrow"), ("size = twin", "wide")]
    assert found["effect"].to_list() == pytest.approx([-0.2, 0.2], abs=1e-9)
    figure = check_json(effects.draw_effects(found, MEASURE))
    assert [note.text for note in figure.layout.annotations] == ["<b>size = twin</b>"]


def test_progress_and_failures_count_every_trial(tmp_path: Path) -> None:
    write_campaign(
        tmp_path / "c",
        operators=("softmax", "SSA"),
        seeds=range(4),
        failed={("SSA", 1): "error", ("SSA", 2): "error"},
        pending=[("SSA", 3)],
        steps=4,
    )
    with Store.open(tmp_path / "c") as store:
        about = grid_context(store, "quickstart", operator_styles(["softmax", "SSA"]))
        found = store.progress("quickstart")
        assert states.totals(found) == {"planned": 8, "ok": 5, "failed": 2, "running": 0, "pending": 1}
        assert [trace.name for trace in check_json(states.draw_progress(found, about.look)).data] == list(
            states.WORDS.values()
        )
        kinds = store.failures("quickstart")
        assert kinds.select("reason", "n").rows() == [("error", 2)]
        rates = forest.rates(store, "quickstart", keys(about))
        assert rates.select("ended", "failed", "rate").rows() == [(4, 0, 0.0), (3, 2, pytest.approx(2 / 3))]
        # Wilson (1927) by hand: p = 2/3, n = 3, z = 1.959964
        assert rates["low"][1] == pytest.approx(0.2077, abs=1e-4)
        check_json(forest.draw_rates(rates, about.look))


def test_log_axes_have_round_ticks_of_which_there_are_not_too_many() -> None:
    assert log_ticks(0.9, 1100) == [1, 10, 100, 1000]
    assert log_ticks(0.9, 11) == [1, 3, 10] or len(log_ticks(0.9, 11)) >= 4
    assert len(log_ticks(1e-9, 1e9)) <= 10
    assert log_ticks(0.047, 0.0571) == [0.048, 0.05, 0.052, 0.054, 0.056]
    assert log_ticks(1.5259, 1.5311) == [1.526, 1.527, 1.528, 1.529, 1.53, 1.531]
    assert log_ticks(2.0, 2.0 + 1e-12) == [2.0, 2.0]


def estimates(values: list[float | None], low: float, high: float) -> pl.DataFrame:
    return pl.DataFrame({"value": values}, schema={"value": pl.Float64}).with_columns(
        low=pl.lit(low), high=pl.lit(high)
    )


def test_a_wild_interval_does_not_flatten_the_values() -> None:
    log = estimates([1.0, 10.0], 1e-9, 1e9)
    assert value_axis(log, "log")["range"] == pytest.approx([-1.12, 2.12])  # a decade beyond, and 4 % of three decades
    assert is_cut(log, "log")
    linear = estimates([1.0, 3.0], -1e9, 1e9)
    assert value_axis(linear, "linear")["range"] == pytest.approx([-1.3, 5.3])
    assert is_cut(linear, "linear")


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_an_interval_of_ordinary_width_is_shown_whole(scale: Scale) -> None:
    ordinary = estimates([2.0, 3.0], 1.5, 3.5)
    low, high = value_axis(ordinary, scale)["range"]
    assert (10**low if scale == "log" else low) < 1.5
    assert (10**high if scale == "log" else high) > 3.5
    assert not is_cut(ordinary, scale)


def test_ticks_are_written_as_a_reader_writes_them() -> None:
    assert [tick_text(value) for value in (0.003, 20.0, 1e4, 1e-6, 3e-7)] == [
        "0.003",
        "20",
        "10,000",
        "10<sup>-6</sup>",
        "3·10<sup>-7</sup>",
    ]


@pytest.mark.parametrize("limit", [0.01, 0.1, 0.5, 1.0, 3.0, 20.0])
def test_ticks_of_ratios_are_symmetric_and_apart(limit: float) -> None:
    values = ratio_ticks(limit)["tickvals"]
    assert values == [-value for value in reversed(values)]
    assert all(b - a >= limit / 3 for a, b in pairwise(values))
    assert len(values) <= 7


def test_long_names_break_between_their_parts() -> None:
    assert break_name("a · b") == "a · b"
    assert break_name("Principled · granularity=constant") == "Principled<br>granularity=constant"
    assert break_name("x" * 99) == "x" * 39 + "…"
    four = "constant · per query · per layer · per head"
    assert break_name(four, 44) == four


@pytest.mark.parametrize("place", range(30, 45))
def test_a_cut_never_goes_through_an_entity(place: int) -> None:
    name = "x" * place + "<&>%{" + "y" * 40
    for shown in (break_name(name), one_line(name)):
        assert plain(unescape(shown)) == shown
        assert "…" in shown


@pytest.mark.parametrize("height", [40, 300, 2000])
def test_a_long_title_of_an_upright_axis_is_broken_and_nothing_of_it_is_lost(height: int) -> None:
    title = "heads with a <b>sink</b> & more (eps 0.3, position 1), share of 1"
    lines = canvas(height, y=title).layout.yaxis.title.text.split("<br>")
    read = [line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for line in lines]
    assert " ".join(read) == title
    assert all(7 * len(line) <= max(height - 60, 7 * 16) for line in read)
    assert not any("<" in line for line in lines)
