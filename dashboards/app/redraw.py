"""Smallest updates of figures and tables on an open page, so that a reader keeps zoom and selection."""

import json
from hashlib import blake2b
from typing import Any, Final

from dash import Patch

from dashboards.app import frame
from dashboards.app.page import SlotContent

MOVED: Final = ("annotations", "shapes", "height")
"""Parts of a layout that are refreshed with the data; axes stay as the reader has left them."""

FOLLOWING: Final = frozenset({"autorangeoptions", "tickvals", "ticktext"})
"""Parts of an axis that are refreshed; they apply until the reader zooms."""

_SIZES: Final = frozenset({"width", "minWidth", "flex"})
"""Parts of a column that follow its rows; a change of them alone does not send the column again."""


def digest(text: str) -> str:
    """Return a hash of a text."""
    return blake2b(text.encode(), digest_size=8).hexdigest()  # short: it travels with every look for news


def axes(shown: SlotContent) -> str:
    """Identify the axes of a figure; the reader keeps the zoom while they stay the same."""
    if shown.figure is None:
        return ""
    layout = shown.figure.layout.to_plotly_json()
    found = [layout[name] for name in sorted(layout) if name.startswith(("xaxis", "yaxis"))]
    parts = [(axis.get("type"), axis.get("title", {}).get("text"), axis.get("categoryarray")) for axis in found]
    return digest(repr(parts))


def figure(shown: SlotContent, look: frame.Looks, *, same: bool) -> Any:
    """Update the figure of a slot; if its axes are the `same`, send only changes, so that the zoom stays."""
    drawn = frame.figure_of(shown, look)
    if not same or shown.figure is None:
        return drawn
    patch = Patch()
    patch["data"] = drawn["data"]
    for name in MOVED:
        if name in drawn["layout"]:
            patch["layout"][name] = drawn["layout"][name]
    for name, axis in frame.axes_of(drawn["layout"]).items():
        for part in FOLLOWING & axis.keys():
            patch["layout"][name][part] = axis[part]
    return patch


def heads(shown: SlotContent) -> str:
    """Identify the columns of a table; the reader keeps sorting and filters while they stay the same."""
    told = [{part: said for part, said in each.items() if part not in _SIZES} for each in shown.columns]
    return digest(json.dumps(told))


def columns(shown: SlotContent) -> dict[str, Any]:
    """Return the properties of a table with new columns."""
    options = Patch()
    options["domLayout"] = frame.layout_of(shown)
    return {"columnDefs": frame.columns_of(shown), "style": frame.style_of(shown), "dashGridOptions": options}
