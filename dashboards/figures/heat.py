"""A heat map of any two axes: a panel or several on one scale of colours, with a sign where there is no value.

`heat_ramp` says how values become colours, `draw_heat` draws. Whoever has the numbers says why some are missing.
"""

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.formatting import plain
from dashboards.figures.canvas import TEXT_SIZE, finite, log_ticks, tick_text
from dashboards.figures.heat_cells import LETTER, LINE, HeatAxis, HeatCell, Ramp, axis_of, heat_cells
from dashboards.figures.panels import panels, title_panels
from dashboards.theme.styles import MUTED, on_fill

_ROW: Final = (4.0, 26.0)
"""Least and most pixels of a row."""
_TALLEST: Final = 900
_BREAK: Final = "<br>"
_WIDTH: Final = 860
"""Pixels of a figure in the narrowest usual place; in a window of usual width it has more."""
_ROOM: Final = (6, 7)
"""Pixels that a cell has to have beyond the text in it, across and up."""
_BAR: Final = (110, 320)
"""Least and most pixels of the bar of colours."""
_BESIDE: Final = (50, 80)
"""Pixels beside all columns that take no name: the axis's title at the left; the bar of colours at the right."""
_TICK: Final = 18
"""Pixels between ticks beside the bar of colours, at least."""
_BAR_TITLE: Final = 16
"""Letters in a line of a title above the bar."""


def heat_ramp(
    values: pl.Series, title: str = "", *, diverging: bool = False, log: bool = False, middle: float = 0.0
) -> Ramp:
    """A ramp that takes all `values`; a diverging one is symmetric about `middle`."""
    kept = [value for value in finite(values.to_list()) if value > 0 or not log]
    if diverging:
        widest = max((abs(value - middle) for value in kept), default=0.0) or 1.0
        return Ramp(middle - widest, middle + widest, diverging=True, title=title)
    low, high = (min(kept), max(kept)) if kept else (1.0, 1.0)
    if low == high:  # one value makes no scale: it stands in the middle of one
        low, high = (low / 2, high * 2) if log else (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))
    return Ramp(low, high, log=log, title=title)


def draw_heat(
    found: pl.DataFrame, ramp: Ramp, *, x: str, y: str, height: int | None = None, width: int = _WIDTH
) -> go.Figure:
    """Cells by `x` and `y`, coloured by `value`, with their values in them where there is room.

    Numeric axes rise, from the left and from below. Other levels stand as they appear, or as their `pl.Enum` lists
    them, from the left and from above. A click on a cell sets its `key`.

    Args:
        found: x, y, value, one row a cell. It may have: panel (its name; each has a panel, in order), text (the value
            in words as plotly takes them, lines joined by "<br>"; else `ramp.words`), note (more words for who points
            at it), key, reason (why there is no value: "not run", "failed: diverged", "not applicable"; see
            `heat_cells.SIGNS`), and partial (whether its text says that it lacks something: where texts have no room,
            such a cell has a diamond).
        ramp: of all panels.
        x: title of the axis, as campaigns have it.
        y: the same.
        height: of the cells of one panel in pixels; by default their number decides.
        width: of the whole figure in pixels, about; it decides which texts fit.
    """
    across, up = axis_of(found["x"]), axis_of(found["y"], falls=True)
    parts = _parts(found)
    columns = min(len(parts), 1 if len(across.names) > 24 else 2 if len(across.names) > 10 else 3)
    most = _ROW[1] + LINE * (_lines(found) - 1)
    row = min(max(_TALLEST / max(len(up.names), 1) * columns / len(parts), _ROW[0]), most)
    each = height or max(round(row * len(up.names)), _least(ramp, len(parts), columns))
    beside = up.widest + _BESIDE[0] + (_BESIDE[1] if ramp.title else 0)
    size = (max(width - beside, 1) / columns / max(len(across.names), 1), each / max(len(up.names), 1))
    below = across.overhang(size[0])
    figure, places = panels(len(parts), each, columns=columns, x=x, y=y)
    figure.update_layout(height=figure.layout.height + 64 + below)
    if any(parts):
        title_panels(figure, places, list(parts))
    figure.update_xaxes(**across.layout(size[0], turns=True), showgrid=False, ticks="", showline=False)
    figure.update_yaxes(**up.layout(size[1], turns=False), showgrid=False)
    hover = f"{plain(x)} %{{x}}<br>{plain(y)} %{{y}}<br>%{{text}}<extra></extra>"
    drawn = [heat_cells(part, across, up, ramp) for part in parts.values()]
    narrow = _are_narrow(drawn, size)
    for place, cells in zip(places, drawn, strict=True):
        bar = _bar(ramp, each * -(-len(parts) // columns)) if ramp.title and place == places[0] else None
        figure.add_trace(_map(cells, across, up, ramp, bar).update(place, hovertemplate=hover))
        figure.add_traces([trace.update(place) for trace in _marks(cells, across, up, ramp, size, narrow=narrow)])
    return figure


def _least(ramp: Ramp, n: int, columns: int) -> int:
    """Pixels of each of `n` panels beside which a bar of colours has room."""
    return max(48, _BAR[0] + LINE * _bar_title(ramp.title).count(_BREAK) if ramp.title and n <= columns else 0)


def _lines(found: pl.DataFrame) -> int:
    texts = found["text"].drop_nulls().to_list() if "text" in found.columns else []
    return max((text.count(_BREAK) + 1 for text in texts), default=1)


def _parts(found: pl.DataFrame) -> dict[str, pl.DataFrame]:
    if "panel" not in found.columns or found.is_empty():
        return {"": found}
    return {str(name): rows for (name,), rows in found.group_by("panel", maintain_order=True)}


def _map(
    cells: Sequence[Sequence[HeatCell]], across: HeatAxis, up: HeatAxis, ramp: Ramp, bar: dict[str, Any] | None
) -> go.Heatmap:
    low, high = ramp.ends
    gap = 1.5 if len(across.names) * len(up.names) <= 4000 else 0
    return go.Heatmap(
        x=across.categories(),
        y=up.categories(),
        z=[[cell.shade for cell in row] for row in cells],
        text=[[cell.told for cell in row] for row in cells],
        customdata=[[cell.key for cell in row] for row in cells],
        zmin=low,
        zmax=high,
        colorscale=[[i / (len(ramp.colors) - 1), color] for i, color in enumerate(ramp.colors)],
        showscale=bar is not None,
        colorbar=bar,
        xgap=gap,
        ygap=gap,
    )


def _bar(ramp: Ramp, height: int) -> dict[str, Any]:
    """The bar of colours, as tall as all panels at most; it belongs to a map, so that it follows new data."""
    length = min(max(height, _BAR[0]), _BAR[1])
    is_short = len(ramp.title) * LETTER < length - 40
    title = plain(ramp.title) if is_short else _bar_title(ramp.title)
    found: dict[str, Any] = {
        "title": {"text": title, "side": "right" if is_short else "top", "font": {"size": TEXT_SIZE}},
        "thickness": 12,
        "outlinewidth": 0,
        "lenmode": "pixels",
        "len": length,
        "y": 1,
        "yanchor": "top",
    }
    if ramp.log:
        values = log_ticks(ramp.low, ramp.high)
        values = values[:: math.ceil(len(values) * _TICK / length)]
        found |= {"tickvals": [ramp.shade(value) for value in values], "ticktext": [tick_text(v) for v in values]}
    return found


def _bar_title(title: str) -> str:
    return _BREAK.join(plain(line) for line in wrap(title, _BAR_TITLE))


def _are_narrow(panels: Sequence[Sequence[Sequence[HeatCell]]], size: tuple[float, float]) -> bool:
    """Whether a text of any panel has no room in a cell of `size` pixels: then no panel has texts."""
    words = [cell.words for cells in panels for row in cells for cell in row if cell.shade is not None]
    lines = [each.split(_BREAK) for each in words]
    longest = max((len(line) for each in lines for line in each), default=0)
    return longest * LETTER + _ROOM[0] > size[0] or max(map(len, lines), default=1) * LINE + _ROOM[1] > size[1]


def _marks(
    cells: Sequence[Sequence[HeatCell]],
    across: HeatAxis,
    up: HeatAxis,
    ramp: Ramp,
    size: tuple[float, float],
    *,
    narrow: bool,
) -> Iterator[go.Scatter]:
    """Signs where there is no value; values in words unless cells, `size` pixels large, are too narrow for them."""
    placed = [
        (x, y, cell)
        for y, row in zip(up.categories(), cells, strict=True)
        for x, cell in zip(across.categories(), row, strict=True)
    ]
    missing = [(x, y, cell) for x, y, cell in placed if cell.shade is None and cell.sign]
    if missing:
        symbols = [cell.sign for _, _, cell in missing]
        marker = {"symbol": symbols, "size": _sign_size(size), "color": MUTED, "line": {"width": 1.4}}
        yield _scatter(missing, mode="markers", marker=marker)
    kept = [(x, y, cell) for x, y, cell in placed if cell.shade is not None]
    if narrow:
        kept = [row for row in kept if row[2].partial]
    low, high = ramp.ends
    colors = [on_fill(ramp.colors, ((cell.shade or 0.0) - low) / (high - low)) for _, _, cell in kept]
    for color in dict.fromkeys(colors):
        rows = [row for row, found in zip(kept, colors, strict=True) if found == color]
        if narrow:
            mark = {"symbol": "diamond-open", "size": _sign_size(size), "color": color, "line": {"width": 1.4}}
            yield _scatter(rows, mode="markers", marker=mark)
            continue
        font = {"color": color, "size": 12}
        yield _scatter(rows, mode="text", text=[cell.words for _, _, cell in rows], textfont=font)


def _sign_size(size: tuple[float, float]) -> float:
    """Pixels of a sign in a cell of `size`."""
    return min(max(0.45 * min(size), 3), 9)


def _scatter(rows: Sequence[tuple[str, str, HeatCell]], **more: Any) -> go.Scatter:
    return go.Scatter(x=[x for x, _, _ in rows], y=[y for _, y, _ in rows], hoverinfo="skip", **more)
