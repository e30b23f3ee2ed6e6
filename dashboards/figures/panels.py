"""Several panels in one figure: panels that share axes, and figures side by side that keep their own."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ablate.dashboards.figures.canvas import TEXT_SIZE, canvas, one_line, upright
from ablate.dashboards.theme.styles import INK

TITLE_ROOM: Final = 30  # pixels between panels above each other that have titles
_NUMBERS: Final = 76  # pixels between panels above each other that have axes of their own
_LETTERS: Final = 110  # letters of titles side by side, in a window of usual width
_BESIDE: Final = 32  # letters of the title of one of several panels side by side, in the narrowest figure
_ACROSS: Final = 0.19  # share of the width between two figures: room for the numbers and the title of an axis
_ABOVE: Final = 22  # pixels above a figure, for its title
_TICKS: Final = 64  # pixels below the last row of panels whose axes are shared
_BELOW: Final = 70  # pixels below a figure, for the numbers and the title of its axis

Place = Mapping[str, str]  # the axes of a panel, as traces name them


def panels(
    n: int, each: int, *, columns: int = 3, x: str | None = None, y: str | None = None, shared: str = "xy"
) -> tuple[go.Figure, list[Place]]:
    """A canvas with `n` panels of `each` pixels, row by row; at most `columns` side by side.

    `x` and `y` are titles of the axes at the bottom and at the left. On the axes `shared` all panels have one range:
    "x", "xy" (then only outer ones have numbers) or "".
    """
    gap, across = (TITLE_ROOM, 0.03) if "y" in shared else (_NUMBERS, 0.12)
    columns = min(n, columns)
    rows = -(-n // columns)
    height = rows * each + (rows - 1) * gap
    specs: Any = [[{} if row * columns + column < n else None for column in range(columns)] for row in range(rows)]
    figure = make_subplots(rows, columns, specs=specs, horizontal_spacing=across, vertical_spacing=gap / height)
    canvas(height + (_TICKS if "y" in shared else 0), x=x, figure=figure)
    figure.update_yaxes(title_text=y and upright(y, each))
    names = ["", *map(str, range(2, n + 1))]
    for i, name in enumerate(names):
        for letter, outer in (("x", i + columns >= n), ("y", i % columns == 0)):
            title = {} if outer or (letter == "y" and "y" not in shared) else {"title_text": ""}
            matches = letter if i and letter in shared else None
            axis = figure.layout[f"{letter}axis{name}"]
            axis.update(matches=matches, showticklabels=outer or "y" not in shared, **title)
    return figure, [{"xaxis": f"x{name}", "yaxis": f"y{name}"} for name in names]


def _write_title(figure: go.Figure, title: str, **at: Any) -> None:
    """Write a title of `one_line` above a panel; `at` is the panel's corner: x, y, xref, yref, yshift."""
    style = {"showarrow": False, "xanchor": "left", "yanchor": "bottom", "font": {"size": TEXT_SIZE, "color": INK}}
    figure.add_annotation(text=title, **style, **at)


def title_panels(figure: go.Figure, places: Sequence[Place], titles: Sequence[str]) -> None:
    """Write a title above each panel, in one line."""
    columns = len({figure.layout[f"xaxis{place['xaxis'][1:]}"].domain for place in places})
    letters = _LETTERS if columns == 1 else _BESIDE
    for place, title in zip(places, one_line(titles, letters), strict=True):
        corner = {"x": 0, "y": 1, "xref": f"{place['xaxis']} domain", "yref": f"{place['yaxis']} domain", "yshift": 3}
        _write_title(figure, title, **corner)
    figure.update_layout(margin_t=TITLE_ROOM + 4, height=figure.layout.height + TITLE_ROOM)


def place_side_by_side(drawn: Sequence[tuple[str, go.Figure]], columns: int = 2) -> go.Figure:
    """The figures as panels with their titles, row by row; each keeps its own axes, panels and bar of colours."""
    width = (1 - _ACROSS * (columns - 1)) / columns
    titles = one_line([title for title, _ in drawn], round(_LETTERS * width))
    titled = [*zip(titles, (panel for _, panel in drawn), strict=True)]
    rows = [titled[i : i + columns] for i in range(0, len(drawn), columns)]
    heights = [max(figure.layout.height for _, figure in row) for row in rows]
    heads = [_ABOVE + max(figure.layout.margin.t for _, figure in row) for row in rows]
    total = sum(heights) + sum(heads) + _BELOW * (len(rows) - 1)
    figure, used, top = canvas(total), 0, total
    for row, height, head in zip(rows, heights, heads, strict=True):
        for column, (title, panel) in enumerate(row):
            left = column * (width + _ACROSS)
            box = (left, left + width, (top - head - height) / total, (top - head) / total)
            used = _add(figure, panel, box, used)
            corner = {"x": left, "y": box[3], "xref": "paper", "yref": "paper", "yshift": panel.layout.margin.t - 4}
            _write_title(figure, title, **corner)
        top -= height + head + _BELOW
    return figure


def _add(figure: go.Figure, panel: go.Figure, box: tuple[float, float, float, float], used: int) -> int:
    """Put a figure into a box (left, right, bottom, top); return how many axes are used then."""

    def rename(axis: str) -> str:
        """The new name of an axis that is called "x2", "x2 domain" or "xaxis2"."""
        number = r"^([xy](?:axis)?)(\d*)"
        return re.sub(number, lambda match: f"{match[1]}{int(match[2] or 1) + used}", axis) if used else axis

    layout = panel.layout.to_plotly_json()
    names = [name for name in layout if re.fullmatch(r"[xy]axis\d*", name)]
    for name in names:
        axis = {"anchor": "y" if name[0] == "x" else "x", "domain": (0, 1), **layout[name]}
        low, high = box[:2] if name[0] == "x" else box[2:]
        axis["domain"] = [low + share * (high - low) for share in axis["domain"]]
        axis |= {key: rename(axis[key]) for key in ("anchor", "matches", "overlaying") if axis.get(key)}
        figure.layout[rename(name)] = axis
    for trace in panel.data:
        moved: dict[str, Any] = trace.to_plotly_json()
        moved |= {axis: rename(moved.get(axis) or axis[0]) for axis in ("xaxis", "yaxis")}
        if moved.get("showscale") and "colorbar" in moved:
            moved["colorbar"] = {**moved["colorbar"], "x": box[1] + 0.005, "xanchor": "left", "y": box[3]}
        figure.add_trace(moved)
    for note in panel.layout.annotations:
        figure.add_annotation(note.update(xref=rename(note.xref), yref=rename(note.yref)))
    return used + max(int(name[5:] or 1) for name in names)
