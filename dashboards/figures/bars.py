"""Grouped bars with error bars: a group of bars per level, a bar per series (paper 004, figure 7)."""

from collections.abc import Mapping
from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import plain
from dashboards.figures.canvas import break_name, canvas, describe_estimate, error_bars, finite
from dashboards.figures.lines import Series
from dashboards.theme.styles import PAPER

_PATTERNS: Final = ("", "/", "x", ".", "\\", "-", "|", "+")
_MOST_LABELS: Final = 24


def draw_bars(found: pl.DataFrame, series: Mapping[str, Series], *, x: str, y: str) -> go.Figure:
    """A bar of `value` per group and series, with its interval; a value that is missing leaves its place free.

    Args:
        found: group, series, value, and perhaps n, low, high. Groups and series stand in the order of their first rows.
        series: by the entries of the column `series`; hatching keeps bars apart where colours do not.
        x: title of the axis of groups.
        y: title of the axis of values, with the unit.
    """
    figure = canvas(380, x=x, y=y)
    groups = list(dict.fromkeys(found["group"]))
    for place, key in enumerate(dict.fromkeys(found["series"])):
        rows = found.filter(pl.col("series") == key).to_dict(as_series=False)
        values = [each if finite([each]) else None for each in rows["value"]]
        n, low, high = (rows.get(name) or [None] * len(values) for name in ("n", "low", "high"))
        color, shape = series[key].style.color, _PATTERNS[place % len(_PATTERNS)]
        figure.add_trace(
            go.Bar(
                x=[groups.index(group) for group in rows["group"]],
                y=values,
                name=break_name(series[key].name),
                legendgroup=key,
                marker={
                    "color": color,
                    "line": {"color": color, "width": 1},
                    "pattern": {"shape": shape, "fillmode": "overlay", "fgcolor": PAPER, "size": 6, "solidity": 0.2},
                },
                error_y=error_bars(values, low, high, thickness=1.4, width=3),
                hovertext=[plain(str(group)) for group in rows["group"]],
                customdata=[describe_estimate(*each) for each in zip(values, low, high, n, strict=True)],
                hovertemplate="%{hovertext}: %{customdata}",
            )
        )
    figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.06)
    every = max(1, -(-len(groups) // _MOST_LABELS))
    ticks = [break_name(str(group), 14) for group in groups[::every]]
    return figure.update_xaxes(tickvals=list(range(0, len(groups), every)), ticktext=ticks, ticks="", showgrid=False)
