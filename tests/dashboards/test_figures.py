"""The data of every figure against hand-computed values; every drawing at least draws."""

import json
import math
from collections.abc import Callable
from html import unescape
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from synthetic import publish_grid, write_campaign

from ablate.dashboards.data.captions import ICONS, mark_verdict
from ablate.dashboards.data.formatting import plain
from ablate.dashboards.data.grid_context import Appearance, GridContext, campaign_styles, grid_context
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures import forest, probe_curves, shift, states, training
from ablate.dashboards.figures.canvas import (
    break_name,
    canvas,
    is_cut,
    least_width,
    log_ticks,
    one_line,
    value_axis,
)
from ablate.dashboards.figures.panels import panels, title_panels
from ablate.dashboards.theme.styles import DIVERGING
from ablate.store import Store
from ablate.store.analysis.verdicts import GridMeasure, verdicts

MEASURE = GridMeasure("mse", {"sigma_f": 5.0, "sigma_x": 1.0})
HALF = 4.302653 * math.log(2) / math.sqrt(3)  # half the t interval of log(1, 2, 4)
WORDS = {word: mark_verdict(word) for word in ICONS}
PAIRED = {"pairs": 3, "method": "paired t", "runs": 3, "baseline_runs": 3}


@pytest.fixture
def about(known: Store) -> GridContext:
    return context(known)


def keys(about: GridContext) -> list[str]:
    return [cell.cell for cell in about.cells]


def check_json(figure: go.Figure) -> go.Figure:
    """The figure, once it is known to be JSON that a page can hold."""
    assert json.loads(figure.to_json())["layout"]["height"] > 100
    return figure


def context(store: Store, grid: str = "known") -> GridContext:
    return grid_context(store, grid, campaign_styles(store))


def test_error_by_shift_is_the_geometric_mean_over_seeds_at_the_measures_other_coordinates(about: GridContext) -> None:
    assert shift.coordinates(about.store, "known", "mse") == {"sigma_f": [1, 5, 9], "sigma_x": [1, 2]}
    assert shift.coordinates(about.store, "known", "loss") == {}
    found = shift.average_points(about.store, "known", MEASURE, ["sigma_f"], keys(about))
    means = [2, 10, 18, 1, 5, 9]
    assert found["x"].to_list() == [1, 5, 9, 1, 5, 9]
    assert found["value"].to_list() == pytest.approx(means)
    assert found["high"].to_list() == pytest.approx([mean * math.exp(HALF) for mean in means], rel=1e-5)
    assert found["n"].unique().to_list() == [3]
    figure = check_json(shift.draw_error_by_shift(found, about.appearance, MEASURE, "sigma_f", "mse"))
    assert [trace.legendgroup for trace in figure.data] == [key for key in keys(about) for _ in range(2)]


def test_change_by_shift_is_the_paired_log_ratio(opened: Callable[..., Store]) -> None:
    base = {("softmax", seed): 2.0**seed for seed in range(3)}
    about = context(opened(base | {("SSA", seed): 2.0 ** (2 * seed) for seed in range(3)}))  # ratios 1, 2, 4
    found = shift.average_points(about.store, "known", MEASURE, ["sigma_f"], keys(about), paired=True)
    assert set(found["cell"]) == set(keys(about)) - {about.baseline}
    assert found["value"].to_list() == pytest.approx([math.log(2)] * 3)
    assert found["high"].to_list() == pytest.approx([math.log(2) + HALF] * 3, rel=1e-5)
    figure = check_json(shift.draw_change_by_shift(found, about.appearance, MEASURE, "sigma_f"))
    assert figure.data[1].text[0].startswith("+100 %, ")
    for changes in ([0.9, 1.1], [-1.1, -0.9], [0.7, 0.7], [0.0, 0.0]):  # zero and what counts as equal are in sight
        ends = {"value": changes, "low": changes, "high": changes}
        given = pl.DataFrame({"cell": about.baseline, "x": [1.0, 2.0], "n": 3, **ends})
        low, high = shift.draw_change_by_shift(given, about.appearance, MEASURE, "x").layout.yaxis.range
        assert low < -math.log(1.05) < 0 < math.log(1.05) < high
        assert low <= min(changes) <= max(changes) <= high


def test_the_map_has_the_value_and_the_paired_change_from_the_baseline(about: GridContext) -> None:
    axes = ("sigma_f", "sigma_x")
    found = shift.shift_map(about.store, "known", MEASURE, axes, keys(about))
    base, other = (found.filter((pl.col("cell") == about.baseline) == same) for same in (True, False))
    assert base["value"].to_list() == pytest.approx([2, 10, 18, 4, 20, 36])
    assert base["change"].null_count() == 6
    assert other["change"].to_list() == pytest.approx([-math.log(2)] * 6)
    figure = check_json(shift.draw_shift_maps(other, about.appearance, MEASURE, axes, "change"))
    assert (figure.data[0].x, figure.data[0].text[0][0]) == (("1", "5", "9"), "−50 %")
    assert figure.data[0].colorscale[0][1] == DIVERGING[0]  # lower is better, and blue
    rising = shift.draw_shift_maps(other, about.appearance, MEASURE._replace(better="higher"), axes, "change")
    assert rising.data[0].colorscale[-1][1] == DIVERGING[0]
    figure = check_json(shift.draw_shift_maps(base.head(5), about.appearance, MEASURE, axes, "value"))
    assert figure.data[0].z[1][2] is None


@pytest.mark.parametrize(
    ("given", "buckets", "width", "wanted"),
    [
        ({"first": 0, "steps": 6}, 3, 2, {0: 1.5, 2: 3.5, 4: 5.5}),
        ({"first": 1, "steps": 7}, 4, 2, {1: 1.5, 3: 3.5, 5: 6}),  # the last bucket is never short
        ({"first": 0, "steps": 4}, 60, 1, {0: 1, 1: 2, 2: 3, 3: 4}),
    ],
)
def test_curves_average_buckets_of_steps_then_seeds(
    opened: Callable[..., Store], given: dict[str, int], buckets: int, width: int, wanted: dict[int, float]
) -> None:
    about = context(opened({("softmax", 0): 1.0, ("softmax", 1): 4.0}, **given))  # their geometric mean is 2
    found = training.curves(about.store, "known", "loss", keys(about), buckets=buckets)
    halves = {step: value / 2 for step, value in found.frame.select("x", "value").iter_rows()}
    assert (found.width, halves) == (width, pytest.approx(wanted))


def test_learned_numbers_keep_layers_and_heads_apart(about: GridContext) -> None:
    found = probe_curves.numbers(about.store, "known", keys(about))
    base = found.filter(pl.col("cell") == about.baseline)
    assert base.select("name", "layer", "head").rows() == [("n", l, h) for l in (0, 1) for h in (0, 1)]
    assert base["value"].to_list() == pytest.approx([1, 11, 2, 12])  # layer + 10 head + mean seed
    figure = check_json(probe_curves.draw_numbers(found, about.appearance))
    places = [x for trace in figure.data for x in trace.x]
    assert len(set(places)) == 8
    assert {round(x) for x in places} == {0, 1}


def test_the_forest_plot_shows_the_rope_and_a_row_without_a_difference(about: GridContext) -> None:
    found = forest.differences(verdicts(about.store, "known"), MEASURE)
    figure = check_json(forest.draw_differences(found, about.appearance, MEASURE, WORDS))
    assert figure.layout.shapes[0].x1 == pytest.approx(math.log(1.05))
    [point] = (trace for trace in figure.data if trace.mode == "markers")
    assert point.x[0] == pytest.approx(-math.log(2))
    assert figure.layout.yaxis2.ticktext[0].endswith(WORDS[found["verdict"][0]])
    empty = found.with_columns(difference=None, low=None, high=None)
    drawn = check_json(forest.draw_differences(empty, about.appearance, MEASURE, WORDS)).data
    assert [trace.mode for trace in drawn] == ["none"]
    ends = {"difference": [-0.5, 0.1], "low": [-80.0, 0.0], "high": [79.0, 0.2], **dict.fromkeys(forest.CORRECTED)}
    huge = pl.DataFrame({"cell": keys(about), **ends, **PAIRED, "verdict": "undecided"})
    figure = check_json(forest.draw_differences(huge, about.appearance, MEASURE, WORDS))
    assert figure.layout.xaxis.range[1] < 2  # one huge interval does not flatten the others
    assert forest.is_cut(huge, MEASURE)
    arrows = [(trace.marker.symbol, *trace.x, *trace.y) for trace in figure.data if trace.cliponaxis is False]
    assert arrows == [
        (f"triangle-{side}", end, 0) for side, end in zip(("left", "right"), figure.layout.xaxis.range, strict=True)
    ]
    bare = huge.with_columns(difference=pl.Series([-0.5, 0.9]), low=None, high=None)  # one seed has no interval
    low, high = check_json(forest.draw_differences(bare, about.appearance, MEASURE, WORDS)).layout.xaxis.range
    assert low < -0.5
    assert high > 0.9


def test_the_interval_that_decides_is_thinner_and_names_have_room(about: GridContext) -> None:
    ends = {"difference": [-0.5], "low": [-0.6], "high": [-0.4], "corrected_low": [-0.9], "corrected_high": [-0.1]}
    found = pl.DataFrame({"cell": keys(about)[1:], **ends, **PAIRED, "verdict": "real, size unproven"})
    thick, point = forest.draw_differences(found, about.appearance, MEASURE, WORDS).data[:2]
    assert (list(thick.x), point.error_x.thickness < thick.line.width) == ([-0.6, -0.4], True)
    ends = [point.x[0] - point.error_x.arrayminus[0], point.x[0] + point.error_x.array[0]]
    assert ends == pytest.approx([-0.9, -0.1])
    words = {"real, size unproven": mark_verdict("real, size unproven")}
    short, long = (
        least_width(forest.draw_differences(found, Appearance(dict.fromkeys(keys(about), name), {}), MEASURE, words))
        for name in ("SSA", "Principled per query · 0.001")
    )
    assert long == short < 368  # on a phone names stand above the bars


def test_cells_with_long_names_have_rows_and_panels_of_different_names(about: GridContext) -> None:
    names = [f"SSA · predicted {level} · {'a_long_name_' * 4}" for level in "abcdefghijklmno"]
    found = forest.differences(verdicts(about.store, "known"), MEASURE).tail(1)
    rows = pl.concat([found.with_columns(cell=pl.lit(name)) for name in names])
    drawn = forest.draw_differences(rows, Appearance(dict(zip(names, names, strict=True)), {}), MEASURE, WORDS)
    shown = drawn.layout.yaxis.ticktext
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) == 56
    figure, places = panels(len(names), 100)
    title_panels(figure, places, names)
    assert len({note.text for note in figure.layout.annotations}) == len(names)


def test_the_title_of_the_only_axis_across_is_one_line_and_that_of_a_panel_several() -> None:
    title = "difference in loss, log axis (lower is better)"
    assert canvas(300, x=title).layout.xaxis.title.text == title
    assert "<br>" in panels(3, 100, x=title)[0].layout.xaxis.title.text


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
        found = forest.effects(store, "quickstart", MEASURE)
    assert found is not None
    assert found.effects.select("factor", "level", "against").rows() == [("size = twin", "wide", "narrow")]
    assert found.effects["effect"].to_list() == pytest.approx([0.4], abs=1e-9)
    figure = check_json(forest.draw_effects(found.effects, MEASURE))
    assert [*figure.layout.yaxis.ticktext] == ["<b>size = twin, against narrow</b>", "wide"]
    both = pl.concat([found.effects, found.effects.with_columns(factor=pl.lit("lr"), level=pl.lit("1"))])
    figure = forest.draw_effects(both, MEASURE)
    heads = ["<b>size = twin, against narrow</b>", "<b>lr, against narrow</b>"]
    assert [*figure.layout.yaxis.ticktext] == [heads[0], "wide", heads[1], "1"]
    assert [*figure.layout.yaxis2.ticktext][::2] == ["", ""]  # a heading has no outcome


def test_of_many_rows_the_best_and_the_most_certain_are_drawn_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pl.DataFrame(
        {
            "level": ["a", "b", "c", "d", "e", "all"],
            "order": [1, 1, 1, 1, 1, 0],
            "difference": [0.3, -2.0, 0.9, 0.4, None, 0.5],
            "p": [0.3, 0.9, 0.01, 0.2, None, 1.0],
        }
    )
    monkeypatch.setattr(forest, "MOST_ROWS", 3)
    assert forest.worth_showing(found, MEASURE)["level"].to_list() == ["b", "c", "all"]
    higher = forest.worth_showing(found, MEASURE._replace(better="higher"))
    assert higher["level"].to_list() == ["c", "d", "all"]
    few = forest.worth_showing(found.drop("order").with_columns(p=None), MEASURE)  # one seed tells nothing of certainty
    assert few["level"].to_list() == ["a", "b", "d"]
    assert forest.worth_showing(found.head(3), MEASURE).equals(found.head(3))


def test_progress_failures_and_curves_count_every_trial(tmp_path: Path) -> None:
    failed = {("SSA", 1): "error", ("SSA", 2): "error"}
    write_campaign(
        tmp_path / "c", operators=("softmax", "SSA"), seeds=range(4), failed=failed, pending=[("SSA", 3)], steps=4
    )
    with Store.open(tmp_path / "c") as store:
        about = context(store, "quickstart")
        found = store.progress("quickstart")
        assert states.totals(found) == {
            "planned": 8,
            "done": 5,
            "failed": 2,
            "running": 0,
            "stopped": 0,
            "lost": 0,
            "pending": 1,
        }
        trials = states.states(store, "quickstart", keys(about))
        drawn = check_json(states.draw_states(trials, about.appearance))
        assert {trace.name: len(trace.x) for trace in drawn.data} == {"done": 5, "failed": 2, "to do": 1}
        assert store.failures("quickstart").select("reason", "n").rows() == [("error", 2)]
        rates = forest.rates(store, "quickstart", keys(about))
        assert rates.select("ended", "failed", "rate").rows() == [(4, 0, 0.0), (3, 2, pytest.approx(2 / 3))]
        # Wilson (1927) by hand: p = 2/3, n = 3, z = 1.959964
        assert rates["low"][1] == pytest.approx(0.2077, abs=1e-4)
        check_json(forest.draw_rates(rates, about.appearance))
        curves = training.curves(store, "quickstart", "loss", keys(about)).frame
    counts = {cell: set(rows["n"]) for (cell,), rows in curves.group_by("series")}
    assert [counts[cell] for cell in keys(about)] == [{4}, {1}]  # failed trials are left out


def test_log_axes_have_round_ticks_of_which_there_are_not_too_many() -> None:
    assert log_ticks(0.9, 1100) == [1, 10, 100, 1000]
    assert log_ticks(0.9, 11) == [1, 3, 10] or len(log_ticks(0.9, 11)) >= 4
    assert len(log_ticks(1e-9, 1e9)) <= 10
    assert log_ticks(0.047, 0.0571) == [0.048, 0.05, 0.052, 0.054, 0.056]
    assert log_ticks(1.5259, 1.5311) == [1.526, 1.528, 1.53]
    assert log_ticks(2.0, 2.0 + 1e-12) == [2.0, 2.0]


def estimates(values: list[float | None], low: float, high: float) -> pl.DataFrame:
    ends = {"low": pl.lit(low), "high": pl.lit(high)}
    return pl.DataFrame({"value": values}, schema={"value": pl.Float64}).with_columns(**ends)


def test_a_wild_interval_does_not_flatten_the_values_and_an_ordinary_one_is_shown_whole() -> None:
    wild: dict[Scale, tuple[pl.DataFrame, list[float]]] = {
        "log": (estimates([1.0, 10.0], 1e-9, 1e9), [-1.12, 2.12]),  # a decade beyond, and 4 % of three decades
        "linear": (estimates([1.0, 3.0], -1e9, 1e9), [-1.3, 5.3]),
    }
    ordinary = estimates([2.0, 3.0], 1.5, 3.5)
    for scale, (found, ends) in wild.items():
        assert value_axis(found, scale)["range"] == pytest.approx(ends)
        assert is_cut(found, scale)
        low, high = value_axis(ordinary, scale)["range"]
        assert (10**low if scale == "log" else low) < 1.5
        assert (10**high if scale == "log" else high) > 3.5
        assert not is_cut(ordinary, scale)


def test_a_cut_never_goes_through_an_entity() -> None:
    for name in ("x" * place + "<&>%{" + "y" * 40 for place in range(34, 42)):
        for shown in (break_name(name), *one_line([name])):
            assert plain(unescape(shown)) == shown
            assert "…" in shown
