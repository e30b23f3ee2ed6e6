"""Several panels in one figure: the same axes in each, titles above, numbers and names of axes at the outer ones."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, panel_title, upright

_TITLE: Final = 30
"""Pixels above a panel, for its title."""
_BETWEEN: Final = 0.03
"""Of the width, between two columns."""
_LETTERS: Final = 110
"""Of titles side by side, in a window of usual width."""
_BELOW: Final = 64
"""Pixels below the last row, for ticks and the title of the axis."""


class Place(NamedTuple):
    """The axes of a panel, as traces name them."""

    x: str
    y: str

    @property
    def layout(self) -> tuple[str, str]:
        """The same axes, as layouts name them."""
        return self.x.replace("x", "xaxis"), self.y.replace("y", "yaxis")

    @property
    def trace(self) -> dict[str, str]:
        """What puts a trace into the panel."""
        return {"xaxis": self.x, "yaxis": self.y}


def panels(
    titles: Sequence[str], each: int, *, columns: int = 3, x: str | None = None, y: str | None = None, below: int = 0
) -> tuple[go.Figure, list[Place]]:
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
    places = [Place(f"x{i or ''}", f"y{i or ''}") for i in [0, *range(2, n + 1)]]
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
