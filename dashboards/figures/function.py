"""Functions in closed form: what an operator or an activation does to a number, or to a row of logits."""

import math

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import broken, canvas
from dashboards.subject import Look


def draw_functions(found: pl.DataFrame, look: Look, *, x: str, y: str) -> go.Figure:
    """One line per series through the points at which it was computed; where it is not finite, a gap.

    Args:
        found: series, x, value; by series, then rising x.
        look: name and style of every series.
        x: title of the axis.
        y: title of the axis.
    """
    figure = canvas(340, x=x, y=y)
    for (series,), rows in found.group_by("series", maintain_order=True):
        style, key = look.styles[str(series)], str(series)
        values = [value if value is not None and math.isfinite(value) else None for value in rows["value"]]
        figure.add_trace(
            go.Scatter(
                x=rows["x"].to_list(),
                y=values,
                mode="lines",
                name=broken(look.names[key]),
                legendgroup=key,
                line={"color": style.color, "dash": style.dash, "width": 2},
                connectgaps=False,
                hovertemplate="%{x:.3g}: %{y:.4g}",
            )
        )
    return figure
