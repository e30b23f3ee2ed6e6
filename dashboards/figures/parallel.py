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
from dashboards.figures.canvas import canvas, cut, finite, in_lines, log_ticks, one_line, points, tick_text
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
    """Make an axis per list of levels, then an axis per number, which may be logarithmic (true)."""
    made = []
    for name, of in levels.items():
        places = {level: i / max(len(of) - 1, 1) for i, level in enumerate(of)}
        every = max(1, math.ceil(len(of) / _MOST_TICKS))
        ticks = [(places[level], plain(cut(level, _LONGEST))) for level in of[::every]]
        made.append(ParallelAxis(name, places, (0.0, 1.0), log=False, ticks=ticks))
    return made + [_number_axis(name, found[name].to_list(), log=log) for name, log in numbers]


def complete_rows(found: pl.DataFrame, numbers: Sequence[tuple[str, bool]]) -> pl.DataFrame:
    """The rows that have every number, positive where its axis is logarithmic."""
    return found.filter(
        pl.col(name).is_finite() & (pl.col(name) > 0 if log else pl.lit(value=True)) for name, log in numbers
    )


def draw_parallel(found: pl.DataFrame, axes: Sequence[ParallelAxis], look: CellLook) -> go.Figure:
    """A line per row of `found`, which has the column cell and one per axis; cells without a style are faint."""
    figure = canvas(440)
    rest: list[list[float | None]] = [[], []]  # one trace for all cells without a style: a thousand stay quick
    for row in found.iter_rows(named=True):
        style, values = look.styles[row["cell"]], [row[axis.name] for axis in axes]
        heights = [axis.height(value) for axis, value in zip(axes, values, strict=True)]
        if style == REST:
            rest[0] += [*range(len(axes)), None]
            rest[1] += [*heights, None]
            continue
        told = [
            f"{plain(axis.name)}: {plain(value) if isinstance(value, str) else number(value)}"
            for axis, value in zip(axes, values, strict=True)
        ]
        trace = points(range(len(axes)), heights, style, told, mode="lines+markers", marker_size=7)
        trace.update(line={"color": style.color, "dash": style.dash, "width": 2}, hovertemplate="%{customdata}")
        figure.add_trace(trace.update(name=one_line(look.names[row["cell"]]), legendgroup=row["cell"]))
    if rest[0]:
        line = {"color": REST.color + _FAINT, "width": 1}
        figure.add_scatter(x=rest[0], y=rest[1], mode="lines", line=line, hoverinfo="skip", legendgroup="rest")
        figure.data = (figure.data[-1], *figure.data[:-1])
    for place, axis in enumerate(axes):
        figure.add_shape(type="line", x0=place, x1=place, y0=0, y1=1, line={"color": AXIS, "width": 1})
        note: dict[str, Any] = {"x": place, "showarrow": False, "bgcolor": PAPER + "b3"}
        title = in_lines(cut(axis.name, 2 * _LONGEST), _LONGEST)
        figure.add_annotation(y=1.08, text=title, font={"color": INK, "size": 13}, **note)
        note |= {"xanchor": "right", "xshift": -6, "font": {"color": MUTED, "size": 12}}
        for height, text in axis.ticks:
            figure.add_annotation(y=height, text=text, **note)
    texts = [text for axis in axes[:1] for text in (*(text for _, text in axis.ticks), cut(axis.name, _LONGEST))]
    figure.update_layout(margin_l=16 + _LETTER * max(map(len, texts), default=0), margin_r=36)
    figure.update_xaxes(range=[-0.02, len(axes) - 0.98], visible=False)
    return figure.update_yaxes(range=[-0.05, 1.14], visible=False)


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
