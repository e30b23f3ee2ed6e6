"""Lines with bands: one line per series over a common axis, in one panel or several."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number, plain
from ablate.dashboards.data.grid_context import Appearance
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.canvas import break_name, canvas, describe_estimate, error_bars, upright, value_axis
from ablate.dashboards.figures.end_labels import label_ends
from ablate.dashboards.figures.panels import panels as panel_grid
from ablate.dashboards.theme.styles import Style

FAR: Final[Mapping[Scale, float]] = {"linear": 1e4, "log": 1e9, "logit": math.inf}
"""A value so many times the usual size is drawn at the edge of the figure, since it would flatten all others."""
FEW: Final = 2  # up to so many curves each has its least and greatest values as lines; more would hide each other
_MOST_SPIKES: Final = 3  # strokes on each side of a line
SPIKE: Final = 5.0  # extremes of many curves are drawn only if they lie so many times as far from the line as usual
_VALUES: Final = ("greatest", "least", "value")
_ROOM: Final = 100.0  # how far beyond the values an interval is drawn; an axis never goes so far
_MOST_POINTS: Final = 4000  # figures of more points have shorter tooltips, so that they stay small
_MOST_UNIFIED: Final = 3  # series that one tooltip can describe without covering the figure
_MARKERS: Final = 7  # markers along a line, which tell it from others of its colour
_BAND_RUNS: Final = 3  # an interval of fewer values says nothing, so it is not drawn
_MOST_TICKS: Final = 12  # places that have a tick each
_LARGEST: Final = 1e300  # sums of larger values leave the doubles
_SINGLE: Final = np.finfo(np.float32)
_Array = npt.NDArray[Any]


class Series(NamedTuple):
    """Name and look of one series."""

    name: str
    style: Style
    group: str = ""  # the `legendgroup` of its traces; empty: its own key
    thin: bool = False  # one of several that are shown together, such as the seeds of a cell


class Panel(NamedTuple):
    """One of the panels of a figure."""

    frame: pl.DataFrame  # as of `draw_lines`
    y: str  # title of its axis
    scale: Scale = "linear"


class Drawing(NamedTuple):
    """Settings that all panels of a figure share."""

    height: int = 400  # pixels of one panel
    columns: int = 1  # panels side by side
    log_x: bool = False  # leaves out what has x <= 0
    markers: bool = False
    width: float = 1.8  # pixels of a line
    words: Callable[[float | None], str] = number  # formats the values of tooltips
    own_x: bool = False  # every panel has a range of x of its own
    bands: bool = True  # draws intervals; tooltips have them in any case
    unified: bool = True  # one tooltip for all series of a place, if they are few and x has numbers
    named: bool = False  # writes names at the ends of lines


PLAIN: Final = Drawing()


def of_cells(appearance: Appearance) -> dict[str, Series]:
    """Cells as series, by cell key."""
    return {cell: Series(name, appearance.styles[cell]) for cell, name in appearance.names.items()}


def draw_lines(
    frame: pl.DataFrame,
    series: Mapping[str, Series],
    *,
    x: str,
    y: str,
    scale: Scale = "linear",
    drawing: Drawing = PLAIN,
) -> go.Figure:
    """One line with a band per series; a gap where a value is missing or not finite.

    `frame` has series, x (numbers or names), value, low, high, perhaps n, rows of a series together in the order of x.
    It may have `least` and `greatest` of buckets: faint lines, or for more than `FEW` series upright strokes at spikes.
    It may have `raw`, `value` before smoothing. `x` and `y` are titles.
    """
    return draw_panels([Panel(frame, y, scale)], series, x=x, drawing=drawing)


def draw_panels(
    panels: Sequence[Panel], series: Mapping[str, Series], *, x: str, drawing: Drawing = PLAIN
) -> go.Figure:
    """`draw_lines` several times with one axis x: zooming into one panel zooms all, unless each has its own."""
    shared = "" if drawing.own_x else "x"
    figure, places = panel_grid(len(panels), drawing.height, columns=drawing.columns, x=x, shared=shared)
    most = max((panel.frame["series"].n_unique() for panel in panels), default=0)
    much = sum(panel.frame.height for panel in panels) > _MOST_POINTS
    counted = all(panel.frame["x"].dtype.is_numeric() for panel in panels)
    drawing = drawing._replace(unified=drawing.unified and counted and most <= _MOST_UNIFIED)
    if drawing.unified:
        figure.update_layout(hovermode="x unified")
        figure.update_xaxes(hoverformat=",")
    grouped = {key: each._replace(group=each.group or key) for key, each in series.items()}
    named = {key: each[:3] for key, each in grouped.items() if drawing.named and counted and not each.thin}
    for place, panel in zip(places, panels, strict=True):
        frame = panel.frame.filter(pl.col("x") > 0) if drawing.log_x else panel.frame
        shown = _clip(frame, panel.scale)
        if "least" in shown.columns and most > FEW:
            shown = _spikes(shown, panel.scale)
        limits = (pl.when(drawing.bands).then(end).alias(end) for end in ("low", "high"))
        ends = shown.select("value", *limits)
        wide = [shown.select(value=name) for name in ("least", "greatest") if name in shown.columns]
        axis = value_axis(pl.concat([ends, *wide], how="diagonal"), panel.scale)
        figure.update_layout({f"yaxis{place['yaxis'][1:]}": {"title.text": upright(panel.y, drawing.height), **axis}})
        for (key,), lines in shown.group_by("series", maintain_order=True):
            traces = _traces(lines, grouped[str(key)], drawing, much=much, few=most <= FEW)
            figure.add_traces([trace.update(place) for trace in traces])
        if named:
            label_ends(figure, shown, named, axis, place, drawing.height)
    reach = pl.concat([panel.frame["x"].drop_nulls() for panel in panels]).unique()
    if drawing.named and counted and not drawing.log_x:  # else plotly leaves room for marks between ends and names
        figure.update_xaxes(type="linear", range=[reach.min(), reach.max()] if len(reach) > 1 else None)
    _tick_places(figure, reach, drawing)
    return figure


def _tick_places(figure: go.Figure, places: pl.Series, drawing: Drawing) -> None:
    """Ticks at single places, at few places of a log axis, and at whole numbers such as layers."""
    if drawing.log_x:
        figure.update_xaxes(type="log")
    if not places.dtype.is_numeric() or not len(places):
        return
    if len(places) == 1:  # else plotly's ticks name numbers about it
        figure.update_xaxes(tickvals=places.to_list())
        # intervals stand beside each other in the order of the series, not on top of each other
        figure.update_layout(scattermode="group", scattergap=0.6)
        figure.for_each_trace(lambda trace: trace.update(offsetgroup=trace.legendgroup))
    elif drawing.log_x and len(places) <= _MOST_TICKS:  # plotly's ticks of a log axis are lone digits
        figure.update_xaxes(tickvals=places.sort().to_list())
    elif (places == places.round()).all() and np.ptp(places.to_numpy()) <= _MOST_TICKS:
        figure.update_xaxes(dtick=1)


# dash and mark of the lines of each quantity
_LEFT: Final = (("solid", "circle"), ("dot", "circle-open"))
_RIGHT: Final = ("dash", "square-open")


def draw_two_axes(
    left: Mapping[str, pl.DataFrame], right: Mapping[str, pl.DataFrame], series: Mapping[str, Series], *, x: str
) -> go.Figure:
    """Two quantities with axes of their own over the same x, such as loss and sink share (paper 004, figure 2).

    `left` has one or two frames as of `draw_lines`, of one unit, by their titles, and `right` one. An axis has the
    first title, and round numbers of its own. All quantities of a series have its colour.
    """
    figure = canvas(360, x=x, y=next(iter(left)))
    sides = [(*side, style, "y") for side, style in zip(left.items(), _LEFT, strict=False)]
    sides += [(*side, _RIGHT, "y2") for side in right.items()]
    for title, frame, (dash, marker), axis in sides:
        for (key,), rows in _clip(frame, "linear").group_by("series", maintain_order=True):
            name, style = f"{series[str(key)].name}, {title}", series[str(key)].style
            line = Series(name, style._replace(dash=dash, marker=marker), str(key))
            traces = _traces(rows, line, Drawing(markers=True, width=2), much=False, few=True)
            figure.add_traces([trace.update(yaxis=axis) for trace in traces])
    second = {
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "rangemode": "tozero",
        "title_text": next(iter(right)),
    }
    figure.update_layout(yaxis2=figure.layout.yaxis.update(tickmode="auto").to_plotly_json())
    return figure.update_layout(yaxis2=second)


def beyond(frame: pl.DataFrame, scale: Scale) -> pl.DataFrame:
    """The rows of a frame as of `draw_lines` with a value too far off to be drawn where it is: in column `beyond`."""
    return _clip(frame, scale).filter(pl.col("beyond").is_not_null())


def extremes_words(curves: int) -> str:
    """Explain how the least and greatest values of buckets are drawn for so many curves."""
    if curves <= FEW:
        return "Faint lines: the least and the greatest single value of each."
    many = f"more than {SPIKE:g} times as far from it as its extremes usually are"
    return f"Upright strokes: the {_MOST_SPIKES} farthest single values on each side of a line, if {many}."


def _clip(frame: pl.DataFrame, scale: Scale) -> pl.DataFrame:
    """The frame with what is too far off at the `edge` of the figure, and the value itself in column `beyond`."""
    kinds: dict[str, Any] = {"n": pl.Int64, "low": pl.Float64, "high": pl.Float64}
    lacking = [name for name in kinds if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None, kinds[name]).alias(name) for name in lacking)
    ends = [name for name in (*_VALUES, "raw", "low", "high") if name in frame.columns]
    frame = frame.with_columns(pl.col(name).cast(pl.Float64).fill_nan(None) for name in ends)
    limits = _limits(frame, scale)
    if limits is None:
        return frame.with_columns(pl.lit(None, pl.Float64).alias(name) for name in ("beyond", "edge"))
    low, high = limits
    wide = (low / _ROOM, high * _ROOM) if scale == "log" else (low - _ROOM * (high - low), high + _ROOM * (high - low))
    marked = [pl.col(name) for name in _VALUES if name in frame.columns]
    far = pl.coalesce(pl.when((each < low) | (each > high)).then(each) for each in marked)
    held = [pl.col(name).clip(*(limits if name in _VALUES else wide)) for name in ends]
    return frame.with_columns(far.alias("beyond"), far.clip(low, high).alias("edge"), *held)


def _spikes(shown: pl.DataFrame, scale: Scale) -> pl.DataFrame:
    """The frame with `least` and `greatest` only where they lie `SPIKE` times as far from the line as they usually do.

    On each side of a line, the farthest stay. Distances are those of the axis, from `raw` if the line is smoothed.
    """
    line = pl.col("raw" if "raw" in shown.columns else "value")
    for name in ("least", "greatest"):
        far = (pl.col(name) / line).log().abs() if scale == "log" else (pl.col(name) - line).abs()
        usual = far.filter(far.is_finite()).median().over("series")
        spike = far.is_finite() & (far > SPIKE * usual + 1e-9 * (1.0 if scale == "log" else line.abs()))
        spike &= pl.when(spike).then(far).rank("ordinal", descending=True).over("series") <= _MOST_SPIKES
        shown = shown.with_columns(pl.when(spike).then(pl.col(name)).alias(name))
    return shown


def _limits(frame: pl.DataFrame, scale: Scale) -> tuple[float, float] | None:
    """The least and greatest value that is drawn where it is; None where nothing can be drawn."""
    values = np.concatenate([frame[name].drop_nulls().to_numpy() for name in _VALUES if name in frame.columns])
    values = values[np.isfinite(values) & ((values > 0) | (scale != "log"))].astype(float)
    sizes = np.abs(values[values != 0])
    if not sizes.size:
        return None
    usual, far = float(np.median(sizes)), FAR[scale]
    near = values[np.abs(values) <= min(usual * far, _LARGEST)]
    if not near.size:
        return None
    if scale == "log":
        near = near[near >= usual / far]
        return float(near.min()) / 2, float(near.max()) * 2
    low, high = float(near.min()), float(near.max())
    room = 0.1 * (high - low) or abs(high) or 1.0
    return low - room, high + room


def _traces(rows: pl.DataFrame, series: Series, drawing: Drawing, *, much: bool, few: bool) -> list[go.Scatter]:
    style, name, group = series.style, break_name(series.name), {"legendgroup": series.group}
    x, y = _numbers(rows["x"]), _numbers(rows["value"])
    enough = pl.lit(drawing.bands) & (pl.col("n").fill_null(_BAND_RUNS) >= _BAND_RUNS)
    ends = rows.select(pl.when(enough).then(pl.col("low", "high")))
    low, high = _numbers(ends["low"]), _numbers(ends["high"])
    fill = style.color + ("1f" if few else "12")
    traces = [band(x, low, high, fill, series.group)] if ends["low"].null_count() < rows.height else []
    faint = {"mode": "lines", "hoverinfo": "skip", **group}
    if "least" in rows.columns:
        traces.append(_extremes(rows, few=few).update(**faint, line_color=style.color + ("59" if few else "99")))
    if "raw" in rows.columns:
        line = {"color": style.color + "66", "width": 1}
        traces.append(go.Scatter(x=x, y=_numbers(rows["raw"]), line=line, **faint))
    color = style.color + ("80" if series.thin else "")
    line = {"color": color, "dash": style.dash, "width": 1.0 if series.thin else drawing.width}
    main = go.Scatter(x=x, y=y, name=name, mode="lines", line=line, **_tooltips(rows, drawing, much=much), **group)
    alone = _lone(y)
    if drawing.markers or alone.any():  # no line reaches a point between two gaps
        size = 8 if drawing.markers else np.where(alone, 6, 0).tolist()
        main.update(mode="lines+markers", marker={"symbol": style.marker, "size": size, "color": style.color})
    elif not series.thin:
        some = {"symbol": style.marker, "size": 7, "color": style.color, "maxdisplayed": _MARKERS}
        main.update(mode="lines+markers", marker=some)
    alone = _lone(np.where(np.isfinite(low) & np.isfinite(high), y, np.nan))
    if alone.any():  # no area reaches these intervals
        least, most = (np.where(alone, end, np.nan).tolist() for end in (low, high))
        main.update(error_y=error_bars(y.tolist(), least, most, color, thickness=1.2))
    traces.append(main)
    far = rows.filter(pl.col("beyond").is_not_null())
    if not far.is_empty():
        symbols = ["triangle-up" if up else "triangle-down" for up in far["beyond"] > far["edge"]]
        trace = go.Scatter(x=_numbers(far["x"]), y=_numbers(far["edge"]), name=name, mode="markers", **group)
        trace.update(marker={"symbol": symbols, "size": 9, "color": style.color}, cliponaxis=False)
        texts = [drawing.words(value) for value in far["beyond"]]
        traces.append(trace.update(text=texts, hovertemplate="%{x:,}: %{text}, beyond the axis"))
    return traces


def _lone(values: _Array) -> _Array:
    """True for the known values both of whose neighbours are missing."""
    held = np.isfinite(np.pad(values.astype(float), 1, constant_values=np.nan))
    alone: _Array = held[1:-1] & ~held[:-2] & ~held[2:]
    return alone


def _extremes(rows: pl.DataFrame, *, few: bool) -> go.Scatter:
    """Lines along the least and the greatest values, or upright strokes from the line to those there are."""
    gap, parts = pl.lit(None, pl.Float64), []
    for name in ("least", "greatest"):
        if few:
            parts += [rows.select("x", y=name), rows.tail(1).select("x", y=gap)]
        else:
            ends = pl.concat_list("value", name, gap)
            parts.append(rows.filter(pl.col(name).is_not_null()).select("x", y=ends).explode("y"))
    drawn = pl.concat(parts)
    return go.Scatter(x=_numbers(drawn["x"]), y=_numbers(drawn["y"]), line={"width": 0.7 if few else 1.2})


def _tooltips(rows: pl.DataFrame, drawing: Drawing, *, much: bool) -> dict[str, Any]:
    place = "" if drawing.unified else "%{x:,}: " if rows["x"].dtype.is_numeric() else "%{x}: "
    line = ", " if drawing.unified else "<br>"
    if much:
        return {"customdata": _numbers(rows["n"]), "hovertemplate": f"{place}%{{y:.4g}}{line}n %{{customdata}}"}
    rows = rows.select("value", "low", "high", "n")
    texts = [describe_estimate(row, drawing.words).replace("<br>", line) for row in rows.iter_rows()]
    return {"text": texts, "hovertemplate": f"{place}%{{text}}"}


def band(x: _Array, low: _Array, high: _Array, fill: str, key: str) -> go.Scatter:
    """The area between two lines; where an end is missing (NaN) the area has a gap."""
    known = np.pad(np.isfinite(low) & np.isfinite(high), 1)
    edges = np.flatnonzero(known[1:] != known[:-1])
    xs, ys = [x[:0]], [high[:0]]
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if last - first > 1:
            at = slice(first, last)
            xs += [x[at], x[at][::-1], x[first : first + 1]]
            ys += [high[at], low[at][::-1], np.full(1, np.nan, low.dtype)]
    area = {"fill": "toself", "fillcolor": fill, "line": {"width": 0}, "mode": "lines", "hoverinfo": "skip"}
    return go.Scatter(x=np.concatenate(xs), y=np.concatenate(ys), legendgroup=key, showlegend=False, **area)


def _numbers(values: pl.Series) -> _Array:
    """Values as plotly takes them in the fewest bytes; NaN, which plotly draws as a gap, where one is missing."""
    if values.dtype.is_integer() and not values.null_count():
        small = bool((values.cast(pl.Int64).abs() < 2**31).all())
        return values.to_numpy().astype(np.int32 if small else np.float64)
    if not values.dtype.is_numeric() and values.dtype != pl.Null:
        return np.array([None if name is None else plain(str(name)) for name in values], dtype=object)
    numbers = values.cast(pl.Float64).to_numpy().astype(np.float64)
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    single = not sizes.size or (sizes.max() < _SINGLE.max and sizes.min() > _SINGLE.tiny)
    return numbers.astype(np.float32) if single else numbers
