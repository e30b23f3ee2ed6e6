"""Grouped bars with error bars: a group of bars per level, a bar per series (paper 004, figure 7)."""

from collections.abc import Mapping
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import number, plain
from dashboards.data.grid_context import CellLook
from dashboards.figures.canvas import break_name, canvas, error_bars, finite
from dashboards.theme.styles import PAPER, Style

_PATTERNS: Final = ("", "/", "x", ".", "\\", "-", "|", "+")
_MOST_LABELS: Final = 24


def draw_bars(found: pl.DataFrame, look: CellLook, *, x: str, y: str) -> go.Figure:
    """A bar of `value` per group and series, with its interval; a value that is missing leaves its place free.

    Args:
        found: group, series, n, value, low, high. Groups and series stand in the order of their first rows.
        look: name and style of every series; hatching keeps bars apart where colours do not.
        x: title of the axis of groups.
        y: title of the axis of values, with the unit.
    """
    figure = canvas(380, x=x, y=y)
    groups = list(dict.fromkeys(found["group"]))
    for place, series in enumerate(dict.fromkeys(found["series"])):
        rows = found.filter(pl.col("series") == series)
        bars = _bars(rows, {group: i for i, group in enumerate(groups)}, look.styles[series], place)
        figure.add_trace(bars.update(name=break_name(look.names[series]), legendgroup=series))
    figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.06)
    every = max(1, -(-len(groups) // _MOST_LABELS))
    figure.update_xaxes(
        tickvals=list(range(0, len(groups), every)),
        ticktext=[break_name(str(group), 14) for group in groups[::every]],
        ticks="",
        showgrid=False,
    )
    return figure


def _bars(rows: pl.DataFrame, at: Mapping[Any, int], style: Style, place: int) -> go.Bar:
    values, lows, highs = (
        [each if finite([each]) else None for each in rows[name]] for name in ("value", "low", "high")
    )
    shape = _PATTERNS[place % len(_PATTERNS)]
    return go.Bar(
        x=[at[group] for group in rows["group"]],
        y=values,
        marker={
            "color": style.color,
            "line": {"color": style.color, "width": 1},
            "pattern": {"shape": shape, "fillmode": "overlay", "fgcolor": PAPER, "size": 6, "solidity": 0.2},
        },
        error_y=error_bars(values, lows, highs, thickness=1.4, width=3),
        text=[plain(str(group)) for group in rows["group"]],
        textposition="none",
        customdata=[_describe(*each) for each in zip(values, lows, highs, rows["n"], strict=True)],
        hovertemplate="%{text}: %{customdata}",
    )


def _describe(value: float | None, low: float | None, high: float | None, n: int | None) -> str:
    ends = [f"{number(low)} to {number(high)}"] if low is not None and high is not None else []
    return "<br>".join([number(value), ", ".join([*ends, *([f"n {n}"] if n is not None else [])])]).removesuffix("<br>")
