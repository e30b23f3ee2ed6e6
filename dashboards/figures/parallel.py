"""Parallel coordinates: a line per cell through its levels on the axes and its averages of measurements."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.canvas import canvas, cut, finite, log_ticks, tick_text
from dashboards.html import plain
from dashboards.theme import INK, MUTED, SEQUENTIAL

_LONGEST: Final = 18
_MOST_LEVELS: Final = 24
_VISIBLE: Final = SEQUENTIAL[2:]
"""Of the ramp what can be seen as a line."""


def draw_parallel(
    found: pl.DataFrame, levels: Mapping[str, Sequence[str]], numbers: Sequence[tuple[str, bool]], color: str
) -> go.Figure:
    """A line per row of `found`; a row without one of the numbers is left out, as `drawn` says.

    Args:
        found: a column per axis (its level) and per number.
        levels: of every axis, from below in the grid's order.
        numbers: their columns, and whether the axis is logarithmic.
        color: the number whose value colours a line, small light and large dark.
    """
    shown = drawn(found, numbers)
    dimensions = [_levelled(name, shown[name].to_list(), of) for name, of in levels.items()]
    dimensions += [_numbered(name, shown[name].to_list(), log=log) for name, log in numbers]
    log = dict(numbers)[color]
    shades = _units(shown[color].to_list(), log=log)
    figure = canvas(420)
    figure.update_layout(margin={"l": 70, "r": 70, "t": 48, "b": 24})
    figure.add_trace(
        go.Parcoords(
            dimensions=dimensions,
            line={
                "color": shades,
                "colorscale": [[i / (len(_VISIBLE) - 1), each] for i, each in enumerate(_VISIBLE)],
                "cmin": min(shades, default=0.0),
                "cmax": max(shades, default=1.0),
            },
            labelfont={"color": INK, "size": 13},
            tickfont={"color": MUTED, "size": 12},
            rangefont={"color": MUTED, "size": 12},
        )
    )
    return figure


def drawn(found: pl.DataFrame, numbers: Sequence[tuple[str, bool]]) -> pl.DataFrame:
    """The rows that have every number, positive where its axis is logarithmic."""
    return found.filter(
        pl.col(name).is_not_null() & pl.col(name).is_finite() & (pl.col(name) > 0 if log else pl.lit(value=True))
        for name, log in numbers
    )


def _levelled(name: str, values: Sequence[str], levels: Sequence[str]) -> dict[str, Any]:
    places = {level: place for place, level in enumerate(levels)}
    every = max(1, math.ceil(len(levels) / _MOST_LEVELS))
    ticks = range(0, len(levels), every)
    return {
        "label": plain(cut(name, _LONGEST)),
        "values": [places[value] for value in values],
        "range": [-0.2, max(len(levels) - 0.8, 0.2)],
        "tickvals": list(ticks),
        "ticktext": [plain(cut(levels[tick], _LONGEST)) for tick in ticks],
    }


def _numbered(name: str, values: Sequence[float], *, log: bool) -> dict[str, Any]:
    units = _units(values, log=log)
    found: dict[str, Any] = {"label": plain(cut(name, _LONGEST)), "values": units}
    ends = finite(units)
    if not ends:
        return found
    low, high = min(ends), max(ends)
    pad = 0.03 * (high - low) or 0.5
    found["range"] = [low - pad, high + pad]
    if log:
        ticks = log_ticks(10 ** (low - pad), 10 ** (high + pad))
        found |= {"tickvals": [math.log10(tick) for tick in ticks], "ticktext": [tick_text(tick) for tick in ticks]}
    return found


def _units(values: Sequence[float], *, log: bool) -> list[float]:
    return [math.log10(value) for value in values] if log else list(values)
