"""Parallel coordinates: a line per cell through its levels on the axes and its averages of measurements.

Drawn as plain lines: plotly's own parallel coordinates need WebGL, which many machines without a GPU lack.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import number, plain
from dashboards.data.grid_context import CellLook
from dashboards.figures.canvas import canvas, cut, finite, in_lines, log_ticks, one_line, tick_text
from dashboards.theme.styles import AXIS, INK, MUTED, PAPER, REST

_LONGEST: Final = 18
_LETTER: Final = 7
"""Pixels."""
_MOST_TICKS: Final = 12
_FAINT: Final = "59"


class ParallelAxis(NamedTuple):
    """One of the parallel axes."""

    name: str
    places: Mapping[Any, float]
    """Levels of a categorical axis; empty for one of numbers."""
    ends: tuple[float, float]
    log: bool
    ticks: Sequence[tuple[float, str]]
    """Height (0..1) and text."""

    def height(self, value: Any) -> float:
        """Where a value stands, 0 to 1."""
        if self.places:
            return self.places[value]
        units = math.log10(value) if self.log else float(value)
        return (units - self.ends[0]) / (self.ends[1] - self.ends[0])


def scales(
    found: pl.DataFrame, levels: Mapping[str, Sequence[str]], numbers: Sequence[tuple[str, bool]]
) -> list[ParallelAxis]:
    """Make an axis per list of levels, then an axis per number, with whether it is logarithmic."""
    return [_level_axis(name, of) for name, of in levels.items()] + [
        _number_axis(name, found[name].to_list(), log=log) for name, log in numbers
    ]


def complete_rows(found: pl.DataFrame, numbers: Sequence[tuple[str, bool]]) -> pl.DataFrame:
    """The rows that have every number, positive where its axis is logarithmic."""
    return found.filter(
        pl.col(name).is_not_null() & pl.col(name).is_finite() & (pl.col(name) > 0 if log else pl.lit(value=True))
        for name, log in numbers
    )


def draw_parallel(found: pl.DataFrame, axes: Sequence[ParallelAxis], look: CellLook) -> go.Figure:
    """A line per row of `found`, which has the column cell and one per axis; cells without a style are faint."""
    figure = canvas(440)
    plain_ones = [row for row in found.iter_rows(named=True) if look.styles[row["cell"]] == REST]
    if plain_ones:
        figure.add_trace(_rest(plain_ones, axes))
    for row in found.iter_rows(named=True):
        if look.styles[row["cell"]] != REST:
            figure.add_trace(_line(row, axes, look))
    for place, axis in enumerate(axes):
        figure.add_shape(type="line", x0=place, x1=place, y0=0, y1=1, line={"color": AXIS, "width": 1})
        title = in_lines(cut(axis.name, 2 * _LONGEST), _LONGEST)
        _mark(figure, place, 1.08, title, {"color": INK, "size": 13}, "center")
        for height, text in axis.ticks:
            _mark(figure, place, height, text, {"color": MUTED, "size": 12}, "right")
    longest = max(
        (len(text) for axis in axes[:1] for _, text in (*axis.ticks, (0, cut(axis.name, _LONGEST)))), default=0
    )
    figure.update_layout(margin={**figure.layout.margin.to_plotly_json(), "l": 16 + _LETTER * longest, "r": 36})
    figure.update_xaxes(range=[-0.02, len(axes) - 0.98], visible=False)
    figure.update_yaxes(range=[-0.05, 1.14], visible=False)
    return figure


def _mark(figure: go.Figure, x: float, y: float, text: str, font: dict[str, Any], anchor: str) -> None:
    shift = -6 if anchor == "right" else 0
    figure.add_annotation(
        x=x, y=y, text=text, font=font, showarrow=False, xanchor=anchor, xshift=shift, bgcolor=PAPER + "b3"
    )


def _line(row: Mapping[str, Any], axes: Sequence[ParallelAxis], look: CellLook) -> go.Scatter:
    style = look.styles[row["cell"]]
    values = [row[axis.name] for axis in axes]
    told = [
        f"{plain(axis.name)}: {plain(value) if isinstance(value, str) else number(value)}"
        for axis, value in zip(axes, values, strict=True)
    ]
    return go.Scatter(
        x=list(range(len(axes))),
        y=[axis.height(value) for axis, value in zip(axes, values, strict=True)],
        mode="lines+markers",
        line={"color": style.color, "dash": style.dash, "width": 2},
        marker={"symbol": style.marker, "size": 7, "color": style.color},
        text=told,
        name=one_line(look.names[row["cell"]]),
        legendgroup=row["cell"],
        hovertemplate="%{text}",
    )


def _rest(rows: Sequence[Mapping[str, Any]], axes: Sequence[ParallelAxis]) -> go.Scatter:
    """All other cells as one trace, so that a thousand of them stay quick."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row in rows:
        xs += [*range(len(axes)), None]
        ys += [*(axis.height(row[axis.name]) for axis in axes), None]
    return go.Scatter(
        x=xs, y=ys, mode="lines", line={"color": REST.color + _FAINT, "width": 1}, hoverinfo="skip", legendgroup="rest"
    )


def _level_axis(name: str, levels: Sequence[str]) -> ParallelAxis:
    step = max(len(levels) - 1, 1)
    places = {level: i / step for i, level in enumerate(levels)}
    every = max(1, math.ceil(len(levels) / _MOST_TICKS))
    ticks = [(places[level], plain(cut(level, _LONGEST))) for level in levels[::every]]
    return ParallelAxis(name, places, (0.0, 1.0), log=False, ticks=ticks)


def _number_axis(name: str, values: Sequence[float], *, log: bool) -> ParallelAxis:
    units = finite([math.log10(value) if log else value for value in values])
    low, high = (min(units), max(units)) if units else (0.0, 1.0)
    pad = 0.03 * (high - low) or 0.5
    low, high = low - pad, high + pad
    if log:
        found = [(math.log10(tick), tick_text(tick)) for tick in log_ticks(10**low, 10**high)]
    else:
        found = [(tick, number(tick)) for tick in (low + pad, (low + high) / 2, high - pad)]
    return ParallelAxis(name, {}, (low, high), log, [((tick - low) / (high - low), text) for tick, text in found])
