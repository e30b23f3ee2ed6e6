"""Two quantities with axes of their own over the same x, such as loss and sink share (paper 004, figure 2)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import plain
from dashboards.data.grid_context import CellLook
from dashboards.figures.canvas import break_name, canvas, upright
from dashboards.figures.lines import band

_LEFT: Final = (("solid", "circle"), ("dot", "circle-open"))
_HEIGHT: Final = 360
_RIGHT: Final = ("dash", "square-open")
"""Line and mark."""


class Side(NamedTuple):
    """The quantity along one of the two axes."""

    title: str
    """With the unit."""
    found: pl.DataFrame
    """series, x, n, value, low, high; by series, then rising x."""


def draw_dual_axis(left: Sequence[Side], right: Side, look: CellLook, *, x: str) -> go.Figure:
    """The first left quantity in full lines with round marks, a second dotted with open ones, the right one dashed with
    open squares.

    Colours are those of the series; all quantities of a series have the same, and its `legendgroup`. Each axis has
    round numbers of its own, and only the left one has grid lines.

    Args:
        left: one or two quantities of the left axis, of one unit; the axis has the title of the first.
        right: that of the right axis.
        look: name and style of every series.
        x: title of the axis that all share.
    """
    figure = canvas(_HEIGHT, x=x, y=left[0].title)
    for side, style, axis in [*((each, _LEFT[i], "y") for i, each in enumerate(left)), (right, _RIGHT, "y2")]:
        for (series,), rows in side.found.group_by("series", maintain_order=True):
            for trace in _traces(str(series), rows, look, side.title, style):
                figure.add_trace(trace.update(yaxis=axis))
    quiet = figure.layout.yaxis.to_plotly_json()
    title = {**quiet["title"], "text": upright(right.title, _HEIGHT)}
    second = {"overlaying": "y", "side": "right", "showgrid": False, "tickmode": "auto", "title": title}
    figure.update_layout(yaxis2={**quiet, **second})
    return figure


def _traces(series: str, rows: pl.DataFrame, look: CellLook, title: str, drawn: tuple[str, str]) -> list[Any]:
    style, (dash, symbol) = look.styles[series], drawn
    x = rows["x"].to_numpy()
    low, high, value = (_finite_or_nan(rows[name]) for name in ("low", "high", "value"))
    line = go.Scatter(
        x=x,
        y=value,
        mode="lines+markers",
        name=f"{break_name(look.names[series])}, {plain(title)}",
        legendgroup=series,
        line={"color": style.color, "dash": dash, "width": 2},
        marker={"symbol": symbol, "size": 7, "color": style.color},
        customdata=rows.select("n").rows(),
        hovertemplate="%{x}: %{y:.4g}, n %{customdata[0]}",
    )
    return [band(x, low, high, style.band(), series), line]


def _finite_or_nan(values: pl.Series) -> npt.NDArray[np.float64]:
    """NaN, which plotly draws as a gap, for what is not finite."""
    found = values.cast(pl.Float64).to_numpy()
    return np.where(np.isfinite(found), found, np.nan)
