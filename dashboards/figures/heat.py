"""A heat map of any two axes: a panel or several on one scale of colours, with a sign where there is no value."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number, plain
from ablate.dashboards.figures.canvas import TEXT_SIZE, finite, in_lines, log_ticks, tick_text
from ablate.dashboards.figures.panels import panels, title_panels
from ablate.dashboards.theme.styles import DIVERGING, MUTED, SEQUENTIAL, on_fill
from ablate.grid.names import shorten

SIGNS: Final = {
    **dict.fromkeys(("failed", "no finite value"), "x-thin-open"),
    "not applicable": "line-ew-open",
    "running": "circle-dot",
    "masked": "",
}
"""plotly's markers by how a reason begins, "" for none; any other, such as "not run", has an open circle."""
_LETTER: Final = 7.0  # pixels across
_LINE: Final = 15  # pixels up
_LONGEST_TICK: Final = 28
_WIDTH: Final = 860  # pixels of a figure in the narrowest usual place; in a window of usual width it has more
_BAR: Final = (110, 320)  # least and most pixels of the bar of colours


class Ramp(NamedTuple):
    """How values become colours, the same in all panels."""

    low: float  # the value of the first colour; what is below has it, too
    high: float
    diverging: bool = False  # from orange over neutral to blue, with the neutral colour in the middle
    low_is_better: bool = False  # a diverging ramp begins with blue, the colour of better values
    log: bool = False  # colours follow the logarithm, and values that are not positive have none
    title: str = ""  # title of the bar of colours, with the unit; without one there is no bar
    words: Callable[[float | None], str] = number  # a value in words
    ticks: Mapping[str, Any] = {}  # ticks of the bar, as plotly takes them; empty: round numbers

    @property
    def colors(self) -> Sequence[str]:
        """From low to high, at equal distances."""
        if not self.diverging:
            return SEQUENTIAL
        return DIVERGING if self.low_is_better else DIVERGING[::-1]

    @property
    def ends(self) -> tuple[float, float]:
        """`low` and `high` as they are drawn."""
        return (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)

    def shade(self, value: float | None) -> float | None:
        """Convert a value to its place on the ramp; None if it has no colour."""
        if value is None or not math.isfinite(value) or (self.log and value <= 0):
            return None
        return math.log10(value) if self.log else value


def heat_ramp(values: pl.Series, title: str = "", *, diverging: bool = False, log: bool = False) -> Ramp:
    """A ramp that takes all `values`; a diverging one is symmetric about 0."""
    kept = [value for value in finite(values.to_list()) if value > 0 or not log]
    if diverging:
        widest = max(map(abs, kept), default=0.0) or 1.0
        return Ramp(-widest, widest, diverging=True, title=title)
    low, high = (min(kept), max(kept)) if kept else (1.0, 1.0)
    if low == high:  # one value makes no scale: it stands in the middle of one
        low, high = (low / 2, high * 2) if log else (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))
    return Ramp(low, high, log=log, title=title)


class _Axis:
    """The levels of an axis: numbers rise; others stand as they appear, or as their `pl.Enum` lists them."""

    def __init__(self, levels: pl.Series, *, falls: bool = False) -> None:
        kind, known = levels.dtype, levels.drop_nulls()
        if kind.is_numeric():
            names = {value: f"{value:.12g}" for value in known.unique().sort()}
        else:
            names = {value: str(value) for value in (kind.categories if isinstance(kind, pl.Enum) else known)}
        self.names = {value: plain(name) for value, name in names.items()}
        self.ticks = shorten([*names.values()], _LONGEST_TICK)
        self.falls = falls and not kind.is_numeric()  # the first is at the top
        self.widest = round(max(map(len, self.ticks), default=0) * _LETTER)  # pixels of the longest name

    def layout(self, pixels: float, *, turns: bool) -> dict[str, Any]:
        """plotly's axis, with as many names as there is room for; names that turn may be longer than a level."""
        every = math.ceil(_LINE / pixels) if not turns or self.widest > pixels else 1
        names, n = list(self.names.values()), len(self.names)
        ends = [n - 0.5, -0.5] if self.falls else [-0.5, n - 0.5]
        ticks = {"tickvals": names[::every], "ticktext": [plain(tick) for tick in self.ticks[::every]]}
        return {"type": "category", "categoryorder": "array", "categoryarray": names, "range": ends, **ticks}


class _Cell(NamedTuple):
    x: str
    y: str
    shade: float | None
    words: str  # its value, or why it has none, for plotly
    tooltip: str
    sign: str  # plotly's marker for it if it has no value; empty: none
    key: Any
    partial: bool


def _cell(row: Mapping[str, Any], ramp: Ramp, x: str, y: str) -> _Cell:
    value = row.get("value")
    shade = ramp.shade(value)
    reason = row.get("reason") or "no value"
    if shade is None and value is not None and math.isfinite(value):
        reason = f"{ramp.words(value)} has no colour on a logarithmic scale"
    words = plain(reason) if shade is None else row.get("text") or plain(ramp.words(value))
    tooltip = f"{words}<br>{plain(row['note'])}" if row.get("note") else words
    sign = next((sign for start, sign in SIGNS.items() if reason.startswith(start)), "circle-open")
    return _Cell(x, y, shade, words, tooltip, sign, row.get("key"), row.get("partial") or False)


def draw_heat(
    frame: pl.DataFrame, ramp: Ramp, *, x: str, y: str, height: int | None = None, columns: int = 3
) -> go.Figure:
    """Cells by `x` and `y`, coloured by `value`, with their values in them where there is room.

    Numeric axes rise, from the left and from below. Other levels stand as they appear, or as their `pl.Enum` lists
    them, from the left and from above. A click on a cell sets its `key`.

    Args:
        frame: x, y, value, one row a cell. It may have: panel (its name, in order), text (the value in words as plotly
            takes them; else `ramp.words`), note (more words for the tooltip), key, reason (why there is no value; see
            `SIGNS`), and partial (true for a diamond where there is no room for a text that says what is lacking).
        ramp: of all panels.
        x, y: titles of the axes, as campaigns have them.
        height: of the cells of one panel in pixels; by default their number decides.
        columns: the most panels side by side; fewer where cells are many.
    """
    across, up = _Axis(frame["x"]), _Axis(frame["y"], falls=True)
    parts = {"": frame}
    if "panel" in frame.columns and not frame.is_empty():
        parts = {str(name): part for (name,), part in frame.group_by("panel", maintain_order=True)}
    columns = min(len(parts), columns, 1 if len(across.names) > 24 else 2 if len(across.names) > 10 else 3)
    each = height or _panel_height(frame, ramp, len(up.names), len(parts) / columns)
    beside = up.widest + 50 + (80 if ramp.title else 0)  # names and title at the left, the bar at the right
    size = (max(_WIDTH - beside, 1) / columns / max(len(across.names), 1), each / max(len(up.names), 1))
    figure, places = panels(len(parts), each, columns=columns, x=x, y=y)
    if across.widest > size[0]:  # names that are turned take room below
        figure.update_layout(height=figure.layout.height + across.widest - _LINE)
    if any(parts):
        title_panels(figure, places, list(parts))
    figure.update_xaxes(**across.layout(size[0], turns=True), showgrid=False, ticks="", showline=False)
    figure.update_yaxes(**up.layout(size[1], turns=False), showgrid=False)
    hover = f"{plain(x)} %{{x}}<br>{plain(y)} %{{y}}<br>%{{text}}<extra></extra>"
    drawn = []
    for part in parts.values():
        at = {(row["x"], row["y"]): row for row in part.iter_rows(named=True)}
        drawn.append(
            [[_cell(at.get((i, j), {}), ramp, across.names[i], up.names[j]) for i in across.names] for j in up.names]
        )
    needs = _text_size(list(chain.from_iterable(chain.from_iterable(drawn))))
    narrow = needs[0] > size[0] or needs[1] > size[1]  # a text of some panel has no room: then no panel has texts
    if not narrow:
        figure.update_layout(meta={"least_width": beside + columns * len(across.names) * needs[0]})
    for place, cells in zip(places, drawn, strict=True):
        bar = _bar(ramp, each * -(-len(parts) // columns)) if ramp.title and place == places[0] else None
        trace = _map(cells, across, up, ramp).update(place, hovertemplate=hover, showscale=bar is not None)
        figure.add_trace(trace.update(colorbar=bar))
        marks = _marks(list(chain.from_iterable(cells)), ramp, size, narrow=narrow)
        figure.add_traces([trace.update(place) for trace in marks])
    return figure


def _panel_height(frame: pl.DataFrame, ramp: Ramp, levels: int, rows: float) -> int:
    """Pixels of a panel of so many levels, of figures with up to 900 pixels."""
    texts = frame["text"].drop_nulls().to_list() if "text" in frame.columns else []
    most = 22.0 + _LINE * max((text.count("<br>") for text in texts), default=0)
    least = _BAR[0] + _LINE * in_lines(ramp.title, 16).count("<br>") if ramp.title and rows <= 1 else 48
    return max(round(min(max(900 / max(levels, 1) / rows, 4.0), most) * levels), least)


def _map(cells: Sequence[Sequence[_Cell]], across: _Axis, up: _Axis, ramp: Ramp) -> go.Heatmap:
    low, high = ramp.ends
    gap = 1.5 if len(across.names) * len(up.names) <= 4000 else 0
    return go.Heatmap(
        x=list(across.names.values()),
        y=list(up.names.values()),
        z=[[cell.shade for cell in row] for row in cells],
        text=[[cell.tooltip for cell in row] for row in cells],
        customdata=[[cell.key for cell in row] for row in cells],
        zmin=low,
        zmax=high,
        colorscale=list(ramp.colors),
        xgap=gap,
        ygap=gap,
    )


def _bar(ramp: Ramp, height: int) -> dict[str, Any]:
    """The bar of colours, as tall as all panels at most; it belongs to a map, so that it follows new data."""
    length = min(max(height, _BAR[0]), _BAR[1])
    is_short = len(ramp.title) * _LETTER < length - 40
    title = (
        {"side": "right", "text": plain(ramp.title)} if is_short else {"side": "top", "text": in_lines(ramp.title, 16)}
    )
    ticks = ramp.ticks
    if ramp.log:
        values = log_ticks(ramp.low, ramp.high)
        values = values[:: math.ceil(len(values) * 18 / length)]
        ticks = {"tickvals": [ramp.shade(value) for value in values], "ticktext": [tick_text(v) for v in values]}
    place = {"thickness": 12, "outlinewidth": 0, "lenmode": "pixels", "len": length, "y": 1, "yanchor": "top"}
    return {"title": {**title, "font": {"size": TEXT_SIZE}}, **place, **ticks}


def _text_size(cells: Sequence[_Cell]) -> tuple[int, int]:
    """Pixels of the cells in which the longest text has room."""
    lines = [cell.words.split("<br>") for cell in cells if cell.shade is not None]
    longest = max(map(len, chain.from_iterable(lines)), default=0)
    return round(longest * _LETTER) + 6, max(map(len, lines), default=1) * _LINE + 7


def _marks(cells: Sequence[_Cell], ramp: Ramp, size: tuple[float, float], *, narrow: bool) -> list[go.Scatter]:
    """Signs where there is no value; values in words unless cells, `size` pixels large, are too narrow for them."""
    low, high = ramp.ends
    groups: dict[str, list[_Cell]] = {}
    for cell in cells:
        if cell.shade is None and cell.sign:
            groups.setdefault(MUTED, []).append(cell)
        elif cell.shade is not None and (cell.partial or not narrow):
            groups.setdefault(on_fill(ramp.colors, (cell.shade - low) / (high - low)), []).append(cell)
    traces = []
    for color, group in groups.items():
        trace = go.Scatter(x=[cell.x for cell in group], y=[cell.y for cell in group], hoverinfo="skip", mode="markers")
        if narrow or color == MUTED:
            symbols = ["diamond-open" if cell.shade is not None else cell.sign for cell in group]
            pixels = min(max(0.45 * min(size), 3), 9)
            trace.marker = {"symbol": symbols, "size": pixels, "color": color, "line": {"width": 1.4}}
        else:
            trace.update(mode="text", text=[cell.words for cell in group], textfont={"color": color, "size": 12})
        traces.append(trace)
    return traces
