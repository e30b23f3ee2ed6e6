"""Parallel coordinates as plain lines: plotly's own need WebGL, which many machines without a GPU lack."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number, plain
from ablate.dashboards.data.grid_context import Appearance
from ablate.dashboards.data.user_errors import Unknown, require
from ablate.dashboards.figures.canvas import canvas, cut, finite, in_lines, log_ticks, one_line, points, tick_text
from ablate.dashboards.theme.styles import AXIS, INK, MUTED, ON_ANY_PAGE, PAPER, REST

_SLACK: Final = 1e-3  # part of an axis by which rounded ends of a range may miss a value
_LONGEST: Final = 18
_LETTER: Final = 7  # pixels
_MOST_TICKS: Final = 12
_BESIDE: Final = 0.025  # part of the width left of the first axis and right of the last, where a drag may begin
_FAINT: Final = "59"


class ParallelAxis(NamedTuple):
    """One of the parallel axes."""

    name: str
    places: Mapping[Any, float]  # levels of a categorical axis; empty for one of numbers
    ends: tuple[float, float]
    log: bool
    ticks: Sequence[tuple[float, str]]  # height (0..1) and text

    def height(self, value: Any) -> float:
        """Where a value stands, 0 to 1."""
        if self.places:
            return self.places[value]
        units = math.log10(value) if self.log else float(value)
        return (units - self.ends[0]) / (self.ends[1] - self.ends[0])

    def ends_of(self, said: str) -> tuple[float, float]:
        """Heights of both ends of a range such as "0.1..0.3" or "SSA..softmax". Raises Unknown."""
        for at in range(len(said)):
            low, high = said[:at], said[at + 2 :]
            try:
                if said[at : at + 2] == ".." and (not self.places or {low, high} <= self.places.keys()):
                    ends = [self.height(end if self.places else float(end)) for end in (low, high)]
                    return min(ends) - _SLACK, max(ends) + _SLACK
            except ValueError:  # not numbers, or not positive on a logarithmic axis
                continue
        raise Unknown(f"{said!r} is no range of {self.name}; write LOW..HIGH with values of that axis")


def scales(
    rows: pl.DataFrame, levels: Mapping[str, Sequence[str]], numbers: Sequence[tuple[str, bool]]
) -> list[ParallelAxis]:
    """Make an axis per list of levels, then an axis per number, which may be logarithmic (true)."""
    made = []
    for name, of in levels.items():
        places = {level: i / max(len(of) - 1, 1) for i, level in enumerate(of)}
        every = max(1, math.ceil(len(of) / _MOST_TICKS))
        ticks = [(places[level], plain(cut(level, _LONGEST))) for level in of[::every]]
        made.append(ParallelAxis(name, places, (0.0, 1.0), log=False, ticks=ticks))
    return made + [_number_axis(name, rows[name].to_list(), log=log) for name, log in numbers]


def complete_rows(rows: pl.DataFrame, numbers: Sequence[tuple[str, bool]]) -> pl.DataFrame:
    """The rows that have every number, positive where its axis is logarithmic."""
    return rows.filter(
        pl.col(name).is_finite() & (pl.col(name) > 0 if log else pl.lit(value=True)) for name, log in numbers
    )


def within(rows: pl.DataFrame, axes: Sequence[ParallelAxis], ranges: Mapping[str, str]) -> pl.DataFrame:
    """The rows inside `ranges`, such as {"lr": "0.1..0.3", "operator": "SSA..softmax"}, by name of an axis.

    Raises Unknown for another axis, and for ends that are not on it.
    """
    known = {axis.name: axis for axis in axes}
    for name, said in ranges.items():
        low, high = known[require("the figure", "axis", name, known)].ends_of(said)
        heights = pl.Series([known[name].height(value) for value in rows[name]], dtype=pl.Float64)
        rows = rows.filter((heights >= low) & (heights <= high))
    return rows


def draw_parallel(
    rows: pl.DataFrame, axes: Sequence[ParallelAxis], appearance: Appearance, ranges: Mapping[str, str]
) -> go.Figure:
    """A line per row (cell, and a column per axis); faint for cells without a style, or outside `ranges`."""
    figure = canvas(440)
    kept = set(within(rows, axes, ranges)["cell"])
    # one trace for all cells without a style, and one for those outside: a thousand stay quick
    rest: dict[bool, list[list[float | None]]] = {inside: [[], []] for inside in (False, True)}
    names = one_line([appearance.names[cell] for cell in rows["cell"]])
    for row, name in zip(rows.iter_rows(named=True), names, strict=True):
        style, values = appearance.styles[row["cell"]], [row[axis.name] for axis in axes]
        heights = [axis.height(value) for axis, value in zip(axes, values, strict=True)]
        if style == REST or row["cell"] not in kept:
            line = rest[row["cell"] in kept and bool(ranges)]
            line[0] += [*range(len(axes)), None]
            line[1] += [*heights, None]
            continue
        told = [
            f"{plain(axis.name)}: {plain(value) if isinstance(value, str) else number(value)}"
            for axis, value in zip(axes, values, strict=True)
        ]
        trace = points(range(len(axes)), heights, style, told, mode="lines+markers", marker_size=7)
        trace.update(line={"color": style.color, "dash": style.dash, "width": 2}, hovertemplate="%{customdata}")
        figure.add_trace(trace.update(name=name, legendgroup=row["cell"]))
    for inside, (xs, ys) in rest.items():
        stroke = {"color": REST.color + ("" if inside else _FAINT), "width": 1}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=stroke, hoverinfo="skip", legendgroup="rest")
    figure.data = (*figure.data[-2:], *figure.data[:-2])
    for place, axis in enumerate(axes):
        figure.add_shape(type="line", x0=place, x1=place, y0=0, y1=1, line={"color": AXIS, "width": 1})
        if axis.name in ranges:
            low, high = axis.ends_of(ranges[axis.name])
            figure.add_shape(
                type="line", x0=place, x1=place, y0=low, y1=high, line={"color": ON_ANY_PAGE[0], "width": 6}
            )
        note: dict[str, Any] = {"x": place, "showarrow": False, "bgcolor": PAPER + "b3"}
        title = in_lines(cut(axis.name, 2 * _LONGEST), _LONGEST)
        figure.add_annotation(y=1.08, text=title, font={"color": INK, "size": 13}, **note)
        note |= {"xanchor": "right", "xshift": -6, "font": {"color": MUTED, "size": 12}}
        for height, text in axis.ticks:
            figure.add_annotation(y=height, text=text, **note)
    texts = [text for axis in axes[:1] for text in (*(text for _, text in axis.ticks), cut(axis.name, _LONGEST))]
    brushes = [{**axis._asdict(), "places": [*axis.places]} for axis in axes]
    # "any" would widen a straight drag along an axis to the whole width, in which no axis is meant
    figure.update_layout(dragmode="select", selectdirection="d", newselection={"line": {"color": INK}})
    figure.update_layout(meta={"axes": brushes}, margin_r=16)
    figure.update_layout(margin_l=_LETTER * max(map(len, texts), default=0))
    beside = _BESIDE * (len(axes) - 1)
    figure.update_xaxes(range=[-beside, len(axes) - 1 + beside], visible=False)
    return figure.update_yaxes(range=[-0.05, 1.14], visible=False)


def _number_axis(name: str, values: Sequence[float], *, log: bool) -> ParallelAxis:
    units = finite([math.log10(value) if log else value for value in values])
    low, high = (min(units), max(units)) if units else (0.0, 1.0)
    pad = 0.03 * (high - low) or 0.5
    low, high = low - pad, high + pad
    if log:
        ticks = [(math.log10(tick), tick_text(tick)) for tick in log_ticks(10**low, 10**high)]
    else:
        ticks = [(tick, number(tick)) for tick in (low + pad, (low + high) / 2, high - pad)]
    return ParallelAxis(name, {}, (low, high), log, [((tick - low) / (high - low), text) for tick, text in ticks])
