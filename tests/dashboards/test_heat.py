"""A heat map shows every value where it belongs, says why one is missing, and is legible whatever stands in it."""

import json
import math
from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl
import pytest

from ablate.dashboards.data.formatting import plain
from ablate.dashboards.figures.canvas import least_width
from ablate.dashboards.figures.heat import Ramp, draw_heat, heat_ramp
from ablate.dashboards.theme.styles import DIVERGING, SEQUENTIAL, contrast, dark_partners, on_fill

HOSTILE = ["<script>alert(1)</script>", "%{x}", "a \"b\" 'c' &amp;"]


def plane(**columns: Sequence[object]) -> pl.DataFrame:
    return pl.DataFrame(columns)


def maps(figure: go.Figure) -> list[go.Heatmap]:
    json.loads(figure.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return [trace for trace in figure.data if isinstance(trace, go.Heatmap)]


def signs(figure: go.Figure) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for trace in figure.select_traces({"type": "scatter", "mode": "markers"}):
        found |= dict(zip(zip(trace.x, trace.y, strict=True), trace.marker.symbol, strict=True))
    return found


def read_texts(figure: go.Figure) -> dict[tuple[str, str], str]:
    """The texts in cells."""
    texts = figure.select_traces({"type": "scatter", "mode": "text"})
    return {(x, y): text for trace in texts for x, y, text in zip(trace.x, trace.y, trace.text, strict=True)}


def test_numbers_rise_and_levels_stand_as_they_appear_from_above_or_as_their_enum_says() -> None:
    found = plane(x=[10, 2, 10, 2], y=["b", "b", "a", "a"], value=[1.0, 2.0, 3.0, 4.0])
    figure = draw_heat(found, heat_ramp(found["value"]), x="n", y="level")
    (drawn,) = maps(figure)
    assert (drawn.x, drawn.y, drawn.z) == (("2", "10"), ("b", "a"), ([2, 1], [4, 3]))
    assert (figure.layout.yaxis.range, figure.layout.xaxis.range) == ((1.5, -0.5), (-0.5, 1.5))
    found = plane(x=[1, 1], y=["high", "low"], value=[1.0, 2.0])
    figure = draw_heat(found.cast({"y": pl.Enum(["low", "middle", "high"])}), heat_ramp(found["value"]), x="n", y="l")
    assert maps(figure)[0].y == ("low", "middle", "high")
    assert signs(figure) == {("1", "middle"): "circle-open"}  # a level without a value has a place


def test_a_cell_without_a_value_has_a_sign_and_says_why() -> None:
    why = [None, "failed: diverged", "not run", "not applicable", "running", "masked: a later key"]
    found = plane(x=[1, 2, 3, 4, 5, 6], y=[0] * 6, value=[1.0, math.nan, None, None, math.inf, None], reason=why)
    figure = draw_heat(found, heat_ramp(found["value"]), x="x", y="y")
    drawn = maps(figure)[0]
    assert drawn.z == ([1.0, *[None] * 5],)
    assert drawn.text == (["1", *why[1:]],)
    assert list(signs(figure).values()) == ["x-thin-open", "circle-open", "line-ew-open", "circle-dot"]
    assert set(read_texts(figure)) == {("1", "0")}


def test_colours_of_a_log_ramp_follow_the_logarithm_and_what_is_not_positive_has_none() -> None:
    found = plane(x=[1, 2, 3, 4], y=[0] * 4, value=[0.01, 100.0, 0.0, -1.0])
    drawn = maps(draw_heat(found, heat_ramp(found["value"], "mse", log=True), x="x", y="y"))[0]
    assert drawn.z == ([-2, 2, None, None],)
    assert (drawn.zmin, drawn.zmax) == (-2, 2)
    ticks = dict(zip(drawn.colorbar.tickvals, drawn.colorbar.ticktext, strict=True))
    assert ticks[0] == "1"


@pytest.mark.parametrize("values", [[-1.0, 3.0], [0.0, 0.0], [None, math.nan], [], [2.0], [-3.0, -3.0]])
def test_a_ramp_has_a_span_and_a_diverging_one_its_middle_in_the_middle(values: list[float | None]) -> None:
    found = pl.Series(values, dtype=pl.Float64)
    ramp = heat_ramp(found, diverging=True)
    assert ramp.low == -ramp.high < 0
    for log in (False, True):
        low, high = heat_ramp(found, log=log).ends
        assert low < high
        shades = [heat_ramp(found, log=log).shade(value) for value in values]
        assert all(low <= shade <= high for shade in shades if shade is not None)


def test_blue_is_above_zero_or_better() -> None:
    blue, orange = DIVERGING[0], DIVERGING[-1]
    signed, change = (Ramp(-1.0, 1.0, diverging=True, low_is_better=low) for low in (False, True))
    assert [(ramp.colors[0], ramp.colors[-1]) for ramp in (signed, change)] == [(orange, blue), (blue, orange)]


def test_panels_share_one_scale_and_one_bar_and_zoom_together() -> None:
    found = plane(x=[1, 1, 2], y=[0, 0, 0], value=[1.0, 5.0, 3.0], panel=["one", "<b>two</b>", "<b>two</b>"])
    figure = draw_heat(found, heat_ramp(found["value"], "mse"), x="x", y="y")
    one, two = maps(figure)
    assert {(trace.zmin, trace.zmax) for trace in (one, two)} == {(1, 5)}
    assert [trace.showscale for trace in (one, two)] == [True, False]
    assert (one.z, two.z) == (([1, None],), ([5, 3],))
    assert [note.text for note in figure.layout.annotations] == ["one", "&lt;b&gt;two&lt;/b&gt;"]
    assert figure.layout.xaxis2.matches == "x"
    assert figure.layout.xaxis.domain[1] < figure.layout.xaxis2.domain[0]


@pytest.mark.parametrize("n", [1, 4, 7])
def test_panels_do_not_overlap_and_the_lowest_of_each_column_names_its_axis(n: int) -> None:
    found = plane(x=[1] * n, y=[0] * n, value=[1.0] * n, panel=[f"panel {i}" for i in range(n)])
    figure = draw_heat(found, heat_ramp(found["value"]), x="x", y="y")
    layout = figure.layout.to_plotly_json()
    boxes = [(layout[f"xaxis{i}"], layout[f"yaxis{i}"]) for i in ["", *range(2, n + 1)]]
    spots = [(tuple(x["domain"]), tuple(y["domain"])) for x, y in boxes]
    for i, ((left, right), (low, high)) in enumerate(spots):
        assert 0 <= left < right <= 1 + 1e-9
        assert -1e-9 <= low < high <= 1
        assert all(right <= x[0] or x[1] <= left or high <= y[0] or y[1] <= low for x, y in spots[:i])
    assert sum(x["showticklabels"] for x, _ in boxes) == min(n, 3)


def test_names_from_a_campaign_are_shown_literally() -> None:
    found = plane(x=HOSTILE, y=HOSTILE, value=[1.0, 2.0, 3.0], note=HOSTILE, panel=HOSTILE, key=HOSTILE)
    figure = draw_heat(found, heat_ramp(found["value"], HOSTILE[0]), x=HOSTILE[1], y=HOSTILE[2])
    literal = [plain(name) for name in HOSTILE]
    assert list(maps(figure)[0].x) == literal
    assert maps(figure)[0].text[0][0] == f"1<br>{literal[0]}"
    assert "<script" not in json.dumps(
        [figure.layout.to_plotly_json(), *(t.to_plotly_json()["text"] for t in maps(figure))]
    )
    assert maps(figure)[0].hovertemplate.count("%{") == 3
    assert maps(figure)[0].customdata[0][0] == HOSTILE[0]


@pytest.mark.parametrize("colors", [SEQUENTIAL, DIVERGING])
def test_texts_contrast_with_every_colour_of_a_ramp_in_both_editions(colors: tuple[str, ...]) -> None:
    partners = dark_partners([])
    for i in range(101):
        text = on_fill(colors, i / 100)
        for swap in (dict[str, str](), partners):
            first, share = divmod(i * (len(colors) - 1), 100)
            ends = [swap.get(color, color) for color in (colors[first], colors[min(first + 1, len(colors) - 1)])]
            parts = [[int(end[at : at + 2], 16) for at in (1, 3, 5)] for end in ends]
            fill = "#" + "".join(f"{round(a + share / 100 * (b - a)):02x}" for a, b in zip(*parts, strict=True))
            assert contrast(swap.get(text, text), fill) >= 4.5, (i, fill)


def test_texts_stand_in_all_cells_if_the_figure_has_room_for_them() -> None:
    two = plane(x=[1, 2], y=[0, 0], value=[0.25, 0.5])
    ramp = Ramp(0, 1, words=lambda value: f"{100 * (value or 0):.0f} %")
    assert read_texts(draw_heat(two, ramp, x="x", y="y")) == {("1", "0"): "25 %", ("2", "0"): "50 %"}
    for across, texts in ((10, 10), (100, 0)):
        found = plane(x=list(range(across)), y=[0] * across, value=[0.25] * across)
        assert len(read_texts(draw_heat(found, heat_ramp(found["value"]), x="x", y="y"))) == texts
    for text, drawn in (("x" * 60, 0), ("x", 2)):  # in all panels or in none
        each = plane(panel=["a", "b"], x=[1, 1], y=[1, 1], value=[1.0, 2.0], text=[text, "y"])
        assert (
            len(list(draw_heat(each, ramp, x="x", y="y").select_traces({"type": "scatter", "mode": "text"}))) == drawn
        )


@pytest.mark.parametrize("panel", [["a"] * 4, ["a", "a", "b", "b"]])
def test_a_figure_is_no_narrower_than_its_texts_need(panel: list[str]) -> None:
    cells = pl.DataFrame({"panel": panel, "x": list("abcd"), "y": "r", "value": 1.0})
    text = "0.0123 ± 0.1"
    figure = draw_heat(cells.with_columns(text=pl.lit(text)), Ramp(0, 2), x="", y="")
    assert least_width(figure) > 4 * len(set(panel)) * len(text) * 7  # pixels of a letter
    figure = draw_heat(cells.with_columns(text=pl.lit("1/2 " * 80)), Ramp(0, 2), x="", y="")
    assert "least_width" not in (figure.layout.meta or {})


def test_a_cell_of_less_than_its_neighbours_is_marked_where_its_text_has_no_room() -> None:
    found = pl.DataFrame({"x": ["a", "b"], "y": ["r", "r"], "value": [1.0, 2.0], "partial": [False, True]})
    for text, shown in (("1/2", [("text", "a"), ("text", "b")]), ("1/2 " * 80, [("markers", "b")])):
        figure = draw_heat(found.with_columns(text=pl.lit(text)), Ramp(0, 2), x="", y="")
        assert sorted((trace.mode, x) for trace in figure.data[1:] for x in trace.x) == shown
