"""Several panels in one figure: panels with the same axes, and figures side by side that keep their own."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, panel_title, upright

_TITLE: Final = 30
"""Pixels above a panel, for its title."""
_BETWEEN: Final = 0.03
"""Share of the width between two columns."""
_LETTERS: Final = 110
"""Letters of titles side by side, in a window of usual width."""
_BELOW: Final = 64
"""Pixels below the last row, for ticks and the title of the axis."""


class PanelPosition(NamedTuple):
    """The axes of a panel, as traces name them."""

    x: str
    y: str

    @property
    def layout(self) -> tuple[str, str]:
        """The same axes, as layouts name them."""
        return self.x.replace("x", "xaxis"), self.y.replace("y", "yaxis")

    @property
    def trace(self) -> dict[str, str]:
        """Arguments that put a trace into the panel."""
        return {"xaxis": self.x, "yaxis": self.y}


def panels(
    titles: Sequence[str], each: int, *, columns: int = 3, x: str | None = None, y: str | None = None, below: int = 0
) -> tuple[go.Figure, list[PanelPosition]]:
    """A canvas with a panel for every title, row by row; zooming into one zooms all.

    Args:
        titles: of the panels, as campaigns have them; a single empty one is no title and takes no room.
        each: the height of a panel in pixels.
        columns: panels side by side, at most.
        x: title of the axes at the bottom.
        y: title of the axes at the left.
        below: pixels that long ticks take beyond the usual.
    """
    n, above = len(titles), _TITLE if any(titles) else 0
    across = min(n, columns)
    rows = -(-n // across)
    figure = canvas(rows * (each + above) + _BELOW + below, x=x)
    if y:
        figure.update_yaxes(title_text=upright(y, each))
    usual = [figure.layout[name].to_plotly_json() for name in ("xaxis", "yaxis")]
    width = (1 - _BETWEEN * (across - 1)) / across
    places = [PanelPosition(f"x{i or ''}", f"y{i or ''}") for i in [0, *range(2, n + 1)]]
    for i, (place, title) in enumerate(zip(places, titles, strict=True)):
        row, column = divmod(i, across)
        left, top, bottom = column * (width + _BETWEEN), (rows - row) / rows, (rows - row - 1) / rows
        last = i + across >= n
        axes = [dict(axis) for axis in usual]
        axes[0] |= {"domain": [left, left + width], "anchor": place.y, "showticklabels": last}
        axes[1] |= {"domain": [bottom, top - above / (each + above) / rows]}
        axes[1] |= {"anchor": place.x, "showticklabels": column == 0}
        axes[0] |= {} if last else {"title": {"text": None}}
        axes[1] |= {} if column == 0 else {"title": {"text": None}}
        if i:
            axes[0] |= {"matches": "x"}
            axes[1] |= {"matches": "y"}
        figure.layout[place.layout[0]], figure.layout[place.layout[1]] = axes
        if title:
            corner = {"x": 0, "y": 1, "xref": f"{place.x} domain", "yref": f"{place.y} domain", "yshift": 3}
            panel_title(figure, title, _LETTERS // across, **corner)
    return figure, places


_ACROSS: Final = 0.19
"""Share of the width between two columns: room for the numbers and the title of an axis."""
_ABOVE: Final = 34
"""Pixels above a panel, for its title."""
_BELOW_FIGURE: Final = 70
"""Pixels below a panel, for the numbers and the title of its axis."""


def place_side_by_side(panels: Sequence[tuple[str, go.Figure]], columns: int = 2) -> go.Figure:
    """The figures as panels with their titles, row by row; each keeps its own axes, and panels of its own.

    A figure's annotations and shapes stay with it, and so does a bar of colours, which gets smaller.
    """
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    heights = [max(figure.layout.height for _, figure in row) for row in rows]
    total = sum(height + _ABOVE for height in heights) + _BELOW_FIGURE * (len(rows) - 1)
    figure, used, top = canvas(total), 0, total
    for row, height in zip(rows, heights, strict=True):
        width = (1 - _ACROSS * (columns - 1)) / columns
        for column, (title, panel) in enumerate(row):
            left = column * (width + _ACROSS)
            box = (left, left + width, (top - _ABOVE - height) / total, (top - _ABOVE) / total)
            used = _add(figure, panel, box, used)
            corner = {"x": box[0], "y": box[3], "xref": "paper", "yref": "paper", "yshift": 8}
            panel_title(figure, title, round(110 * width), **corner)
        top -= height + _ABOVE + _BELOW_FIGURE
    figure.update_layout(barmode="group", bargap=0.25)
    return figure


def _add(figure: go.Figure, panel: go.Figure, box: tuple[float, float, float, float], used: int) -> int:
    """Put a figure into a box; the number of axes that are used then."""
    layout = panel.layout.to_plotly_json()
    names = sorted({name.removeprefix(kind) for kind in ("xaxis", "yaxis") for name in layout if name.startswith(kind)})
    new = {old: _number(used + place) for place, old in enumerate(names)}
    for kind in ("xaxis", "yaxis"):
        for old in names:
            if f"{kind}{old}" in layout:
                figure.layout[f"{kind}{new[old]}"] = _axis(layout[f"{kind}{old}"], kind, old, box, new)
    for trace in panel.data:
        given = trace.to_plotly_json()
        axes = {axis: _rename_axis(given.get(axis) or axis[0], new) for axis in ("xaxis", "yaxis")}
        bar = {"colorbar": _bar(given["colorbar"], box)} if given.get("showscale") and "colorbar" in given else {}
        figure.add_trace({**given, **axes, **bar})
    for kind in ("annotations", "shapes"):
        figure.layout[kind] = [*figure.layout[kind], *_move_marks(layout.get(kind) or (), box, new)]
    return used + len(names)


def _number(place: int) -> str:
    return "" if place == 0 else str(place + 1)


def _rename_axis(name: str, new: dict[str, str]) -> str:
    """The new name of an axis that is called "x2", or "x2 domain"."""
    axis, _, domain = name.partition(" ")
    return f"{axis[0]}{new[axis[1:]]}{' domain' if domain else ''}"


def _axis(
    given: dict[str, Any], kind: str, old: str, box: tuple[float, float, float, float], new: dict[str, str]
) -> Any:
    low, high = box[:2] if kind == "xaxis" else box[2:]
    first, last = given.get("domain") or (0, 1)
    other = "y" if kind == "xaxis" else "x"
    named = {name: _rename_axis(given[name], new) for name in ("matches", "overlaying") if given.get(name)}
    anchor = given.get("anchor") or f"{other}{old if old in new else ''}"
    if named.get("overlaying"):
        anchor = f"{other}{_first(given['overlaying'])}"
    return {
        **given,
        **named,
        "anchor": _rename_axis(anchor, new),
        "domain": [low + first * (high - low), low + last * (high - low)],
    }


def _first(axis: str) -> str:
    return axis[1:]


def _bar(given: dict[str, Any], box: tuple[float, float, float, float]) -> dict[str, Any]:
    return {**given, "x": box[1] + 0.005, "xanchor": "left", "y": box[3], "yanchor": "top"}


def _move_marks(given: Sequence[Any], box: tuple[float, float, float, float], new: dict[str, str]) -> Iterator[Any]:
    for each in given:
        moved = dict(each)
        for axis, (low, high) in (("x", box[:2]), ("y", box[2:])):
            ref = each.get(f"{axis}ref") or axis
            if ref == "paper":
                for part in (axis, f"{axis}0", f"{axis}1"):
                    if isinstance(each.get(part), int | float):
                        moved[part] = low + each[part] * (high - low)
            else:
                moved[f"{axis}ref"] = _rename_axis(ref, new)
        yield moved
