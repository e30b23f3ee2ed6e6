"""A figure that leaves its page takes with it what the page around it says: title, legend, paper."""

from typing import Final

import plotly.graph_objects as go

from dashboards.html import plain
from dashboards.theme import INK, PAPER

_TITLE: Final = 46
"""Pixels above a figure for its title."""

_LEGEND: Final = 26
"""Pixels below a figure for each row of its legend."""

_EACH_ROW: Final = 4
"""Entries of a legend."""


def alone(figure: go.Figure, title: str, *, legend: bool = False) -> go.Figure:
    """The figure with its title, and a legend where one is wanted; it is changed in place.

    One entry per `legendgroup` of traces that have a name and do not decline a legend.
    """
    groups: set[str] = set()
    for trace in figure.data:
        group = getattr(trace, "legendgroup", None)
        listed = legend and bool(group and trace.name) and trace.showlegend is not False and group not in groups
        if group is not None:
            trace.showlegend = listed
        if listed:
            groups.add(str(group))
    rows = -(-len(groups) // _EACH_ROW)
    figure.update_layout(
        title={"text": plain(title), "x": 0, "xref": "paper", "font": {"size": 15, "color": INK}},
        height=(figure.layout.height or 400) + _TITLE + _LEGEND * rows,
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        showlegend=bool(groups),
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
    )
    margin = figure.layout.margin.to_plotly_json()
    return figure.update_layout(margin={**margin, "t": _TITLE, "b": 8 + _LEGEND * rows})
