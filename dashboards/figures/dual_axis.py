"""Two quantities with axes of their own over the same x, such as loss and sink share (paper 004, figure 2)."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import broken, canvas
from dashboards.figures.lines import band
from dashboards.html import plain
from dashboards.subject import Look


class Side(NamedTuple):
    """One of the two axes."""

    title: str
    """With the unit."""
    found: pl.DataFrame
    """series, x, n, value, low, high; by series, then rising x."""
    log: bool = False


def draw_dual_axis(
    left: Side, right: Side, look: Look, *, x: str, log_x: bool = False, sync: bool = False
) -> go.Figure:
    """The left quantity in full lines with round marks, the right one in dashed lines with open squares.

    Colours are those of the series; both quantities of a series have the same, and its `legendgroup`.

    Args:
        left: the quantity of the left axis.
        right: that of the right axis.
        look: name and style of every series of either side.
        x: title of the axis that both share.
        log_x: whether that axis is logarithmic.
        sync: whether the ticks of the right axis stand where those of the left one do; by default each axis has round
            numbers of its own, and only the left one has grid lines.
    """
    figure = canvas(360, x=plain(x), y=plain(left.title))
    for side, axis in ((left, "y"), (right, "y2")):
        for (series,), rows in side.found.group_by("series", maintain_order=True):
            for trace in _traces(str(series), rows, look, side.title, second=axis == "y2"):
                figure.add_trace(trace.update(yaxis=axis))
    quiet = figure.layout.yaxis.to_plotly_json()
    second = {"overlaying": "y", "side": "right", "showgrid": False, "tickmode": "sync" if sync else "auto"}
    title = {**quiet["title"], "text": plain(right.title)}
    figure.update_layout(yaxis2={**quiet, **second, "title": title, "type": "log" if right.log else "linear"})
    figure.update_yaxes(type="log" if left.log else "linear", selector={"side": None})
    figure.update_xaxes(type="log" if log_x else "-")
    return figure


def _traces(series: str, rows: pl.DataFrame, look: Look, title: str, *, second: bool) -> list[Any]:
    style = look.styles[series]
    x = rows["x"].to_numpy()
    low, high, value = (_drawn(rows[name]) for name in ("low", "high", "value"))
    line = go.Scatter(
        x=x,
        y=value,
        mode="lines+markers",
        name=f"{broken(look.names[series])}, {plain(title)}",
        legendgroup=series,
        line={"color": style.color, "dash": "dash" if second else "solid", "width": 2},
        marker={"symbol": "square-open" if second else "circle", "size": 7, "color": style.color},
        customdata=rows.select("n").rows(),
        hovertemplate="%{x}: %{y:.4g}, n %{customdata[0]}",
    )
    return [band(x, low, high, style.band(), series), line]


def _drawn(values: pl.Series) -> npt.NDArray[np.float64]:
    """NaN, which plotly draws as a gap, for what is not finite."""
    found = values.cast(pl.Float64).to_numpy()
    return np.where(np.isfinite(found), found, np.nan)
