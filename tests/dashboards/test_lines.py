"""Lines with bands: what is drawn is what the frame holds; gaps, spikes and values that are far off stay visible."""

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest

from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.end_labels import spread
from ablate.dashboards.figures.lines import Drawing, Panel, Series, beyond, draw_lines, draw_panels
from ablate.dashboards.theme.styles import REST

TWO = {"a": Series("first", REST), "b": Series("<b>%{x}</b>", REST)}


def frame(values: list[float | None], key: str = "a", **more: list[float]) -> pl.DataFrame:
    rows = len(values)
    columns = {"series": [key] * rows, "x": range(1, rows + 1), "n": [3] * rows, "value": values, **more}
    return pl.DataFrame(columns, schema_overrides={"value": pl.Float64})


def draw(found: pl.DataFrame, scale: Scale = "linear", **more: Any) -> go.Figure:
    figure = draw_lines(found, TWO, x="step", y="loss", scale=scale, drawing=Drawing(**more))
    json.dumps(json.loads(figure.to_json()), allow_nan=False)
    return figure


def line(figure: go.Figure, key: str = "a") -> go.Scatter:
    return next(trace for trace in figure.data if trace.name and trace.legendgroup == key)


def test_a_line_has_the_values_of_its_series_and_a_gap_where_one_is_missing() -> None:
    figure = draw(pl.concat([frame([1.0, None, math.nan, 4.0, 5.0]), frame([7.0, 8.0], "b")], how="diagonal"))
    np.testing.assert_array_equal(line(figure).y, [1, np.nan, np.nan, 4, 5])
    np.testing.assert_array_equal(line(figure, "b").x, [1, 2])
    assert line(figure, "b").name == "&lt;b&gt;%&#123;x}&lt;/b&gt;"


def test_at_a_single_place_series_stand_beside_each_other_and_elsewhere_they_do_not() -> None:
    ends = {"low": [0.5], "high": [1.5]}
    alone = draw(pl.concat([frame([1.0], **ends), frame([1.1], "b", **ends)]))
    assert alone.layout.scattermode == "group"
    assert [line(alone, key).offsetgroup for key in "ab"] == ["a", "b"]
    assert [list(line(alone, key).x) for key in "ab"] == [[1], [1]]
    two = draw(pl.concat([frame([1.0, 2.0]), frame([1.1, 2.1], "b")]))
    assert (two.layout.scattermode, line(two).offsetgroup) == (None, None)


def test_a_point_between_two_gaps_is_marked_since_no_line_reaches_it() -> None:
    assert line(draw(frame([1.0, None, 3.0, 4.0]))).marker.size == (6, 0, 0, 0)
    assert line(draw(frame([1.0, 2.0]))).marker.maxdisplayed > 0  # marks that stand for the whole line, and few


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("wild", [1e30, math.inf])
def test_a_value_that_is_far_off_leaves_the_others_legible_and_is_marked(scale: Scale, wild: float) -> None:
    found = frame([1.0, 2.0, wild, 2.0, 1.0])
    figure = draw(found, scale)
    low, high = figure.layout.yaxis.range
    assert (10**high if scale == "log" else high) < 10
    marks = figure.data[-1]
    assert (list(marks.x), list(marks.marker.symbol), marks.legendgroup) == ([3], ["triangle-up"], "a")
    assert marks.text[0] in ("1.00 × 10³⁰", "∞")
    assert beyond(found, scale)["beyond"].to_list() == [wild]
    assert low < high


def test_nothing_is_cut_from_ordinary_values_and_zero_on_a_log_axis_is_marked_at_its_end() -> None:
    falling = frame([20.0 * math.exp(-i) for i in range(9)])
    for scale in ("log", "linear"):
        assert beyond(falling, scale).is_empty()
        np.testing.assert_allclose(line(draw(falling, scale)).y, falling["value"], rtol=1e-6)
    marks = draw(frame([1.0, 0.0, 2.0]), "log").data[-1]
    assert (list(marks.x), list(marks.marker.symbol)) == ([2], ["triangle-down"])


def test_extremes_of_few_curves_are_faint_lines_without_area() -> None:
    found = frame([1.0, 1.0, 1.0], least=[1.0, 0.5, 1.0], greatest=[1.0, 40.0, 1.0])
    figure = draw(found)
    assert figure.layout.yaxis.range[1] > 40
    np.testing.assert_allclose(figure.data[0].y, [1, 0.5, 1, np.nan, 1, 40, 1, np.nan])
    assert all(trace.fill is None for trace in figure.data)


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_of_many_curves_only_spikes_are_drawn_and_the_axis_has_room_for_them(scale: Scale) -> None:
    usual = [1.1, 1.12, 1.1, 1.09, 1.1]
    rows = [frame([1.0] * 5, str(k), least=[0.9] * 5, greatest=usual) for k in range(3)]
    spiky = frame([1.0] * 5, "3", least=[0.9, 0.9, 0.01, 0.9, 0.9], greatest=[*usual[:3], 9.0, 1.1])
    figure = draw_lines(
        pl.concat([*rows, spiky]), {str(k): TWO["a"] for k in range(4)}, x="step", y="loss", scale=scale
    )
    strokes = {trace.legendgroup: trace for trace in figure.data if not trace.name and len(trace.y)}
    assert list(strokes) == ["3"]
    np.testing.assert_array_equal(strokes["3"].x, [3, 3, 3, 4, 4, 4])
    np.testing.assert_allclose(strokes["3"].y, [1, 0.01, np.nan, 1, 9, np.nan], rtol=1e-6)
    high = figure.layout.yaxis.range[1]
    assert (10**high if scale == "log" else high) > 9


def test_of_many_spikes_the_farthest_are_drawn() -> None:
    """Else strokes cover a figure whose seeds change at different steps."""
    greatest = [1.1] * 30 + [float(k) for k in range(10, 30)]
    rows = [frame([1.0] * 50, str(k), least=[0.9] * 50, greatest=greatest) for k in range(4)]
    figure = draw_lines(pl.concat(rows), {str(k): TWO["a"] for k in range(4)}, x="step", y="loss")
    strokes = [trace for trace in figure.data if not trace.name and len(trace.y)]
    assert [list(trace.y[1::3]) for trace in strokes] == [greatest[-3:]] * 4


def test_panels_share_the_axis_x_and_each_has_its_own_y() -> None:
    panels = [Panel(frame([1.0, 2.0]), "loss"), Panel(frame([100.0, 300.0]), "norm", "log"), Panel(frame([]), "none")]
    figure = draw_panels(panels, TWO, x="step")
    assert [figure.layout[name].matches for name in ("xaxis", "xaxis2", "xaxis3")] == [None, "x", "x"]
    assert [figure.layout[name].title.text for name in ("yaxis", "yaxis2", "yaxis3")] == ["loss", "norm", "none"]
    assert [figure.layout[name].title.text for name in ("xaxis", "xaxis2", "xaxis3")] == ["", "", "step"]
    assert [figure.layout[name].type for name in ("yaxis", "yaxis2")] == ["linear", "log"]
    assert [trace.yaxis for trace in figure.data] == ["y", "y2"]
    domains = [figure.layout[name].domain for name in ("yaxis", "yaxis2", "yaxis3")]
    assert all(upper[0] > lower[1] for upper, lower in pairwise(domains))


def test_a_figure_of_forty_curves_of_four_hundred_points_is_less_than_a_megabyte() -> None:
    rows = [frame([math.sin(i + k) for i in range(400)], str(k), low=[-1.0] * 400, high=[1.0] * 400) for k in range(40)]
    figure = draw_lines(pl.concat(rows), {str(k): TWO["a"] for k in range(40)}, x="step", y="loss")
    assert len(figure.to_json()) < 1_000_000


def test_an_interval_that_no_area_reaches_is_a_bar() -> None:
    found = frame([1.0, None, 3.0, 4.0], low=[0.5, 0.0, 2.5, 3.5], high=[2.0, 0.0, 3.5, 4.5])
    bars = line(draw(found.with_columns(pl.when(pl.col("x") != 2).then(pl.col("low", "high"))))).error_y
    assert (bars.array, bars.arrayminus) == ((1.0, None, None, None), (0.5, None, None, None))
    assert line(draw(frame([1.0, 2.0], low=[0.5, 1.0], high=[2.0, 3.0]))).error_y.array is None


def test_an_interval_of_fewer_than_three_is_told_and_not_drawn() -> None:
    for n, areas in ((2, 0), (3, 1)):
        found = frame([1.0, 2.0, 3.0], low=[0.5, 1.5, 2.5], high=[1.5, 2.5, 3.5]).with_columns(n=pl.lit(n))
        figure = draw(found)
        assert sum(trace.fill == "toself" for trace in figure.data) == areas
        assert line(figure).text[0] == f"1, 0.5 to 1.5, n {n}"
        assert figure.layout.hovermode == "x unified"
    four = dict.fromkeys("abcd", TWO["a"])
    many = draw_lines(pl.concat([frame([1.0, 2.0], key) for key in four]), four, x="step", y="loss")
    assert many.layout.hovermode == "closest"  # one tooltip for all would cover the figure
    assert [trace.fill for trace in draw(found, bands=False).data] == [None]


def end_labels(figure: go.Figure, height: int = 400) -> list[tuple[str, float]]:
    """Return the names at the ends of lines, the lowest first, with their places in pixels."""
    axis, texts = figure.layout.yaxis, [trace for trace in figure.data if trace.mode == "text"]
    low, high = axis.range
    units = [math.log10(text.y[0]) if axis.type == "log" else text.y[0] for text in texts]
    assert all(low <= unit <= high for unit in units)  # plotly hides what lies outside
    places = [
        (text.legendgroup, (unit - low) / (high - low) * (height - 60)) for text, unit in zip(texts, units, strict=True)
    ]
    return sorted(places, key=lambda place: place[1])


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_names_at_the_ends_of_lines_keep_off_each_other_in_the_order_of_the_ends(scale: Scale) -> None:
    ends = {"a": 1.0, "b": 1.001, "c": 1.002, "d": 50.0, "e": 1.003}
    found = pl.concat([frame([100.0, end], key) for key, end in ends.items()])
    looks = {key: Series(f"name {key}", REST) for key in ends}
    figure = draw_lines(found, looks, x="step", y="loss", scale=scale, drawing=Drawing(named=True))
    placed = end_labels(figure)
    assert [key for key, _ in placed] == ["a", "b", "c", "e", "d"]
    assert min(high - low for (_, low), (_, high) in pairwise(placed)) >= 12
    assert list(figure.layout.xaxis.range) == [1, 2]  # so that names begin where lines end
    assert figure.layout.margin.r > 6 * len("name a")


def test_names_of_lines_are_as_near_as_can_be_and_more_than_fit_stand_closer() -> None:
    assert spread([50.0, 51.0, 90.0], 10, 100) == pytest.approx([45.5, 55.5, 90.0])
    assert spread([0.0, 99.0, 100.0], 10, 100) == pytest.approx([0.0, 90.0, 100.0])
    assert spread([5.0] * 6, 100, 100) == pytest.approx([0, 20, 40, 60, 80, 100])
    rng = np.random.default_rng(3)
    for _ in range(50):
        places = rng.uniform(0, 300, 15)
        found = spread(places.tolist(), 15, 300)
        ordered = np.array(found)[np.argsort(places)]
        assert np.diff(ordered).min() >= 15 - 1e-9
        assert ordered[0] >= 0
        assert ordered[-1] <= 300 + 1e-9
