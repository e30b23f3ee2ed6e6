"""The parts of a page: a figure with its caption, legend and data; a swatch; the name of a cell."""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import count, entry
from ablate.dashboards.data.grid_context import Appearance
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.dashboards.figures.canvas import least_width
from ablate.dashboards.html.markup import copy_button, details, plain_table, script_json, tag, text
from ablate.dashboards.theme.styles import REST, Style
from ablate.store.export.csv_file import csv_text

MOST_DATA_ROWS: Final = 200

_SHAPES: Final = {
    "line-ew": "",  # a line without a marker
    "circle": '<circle cx="17" cy="7" r="4"{paint}/>',
    "square": '<rect x="13.4" y="3.4" width="7.2" height="7.2"{paint}/>',
    "diamond": '<path d="M17 2l5 5-5 5-5-5z"{paint}/>',
    "triangle-up": '<path d="M17 2.2l4.8 8.4h-9.6z"{paint}/>',
    "triangle-down": '<path d="M17 11.8l4.8-8.4h-9.6z"{paint}/>',
    "pentagon": '<path d="M17 2l5 3.6-1.9 5.9h-6.2L12 5.6z"{paint}/>',
    "hexagram": '<path d="M17 1.6l1.6 2.7h3.1L20.1 7l1.6 2.7h-3.1L17 12.4l-1.6-2.7h-3.1L13.9 7l-1.6-2.7h3.1z"{paint}/>',
}


class FigureBlock(NamedTuple):
    """One figure of the page."""

    key: str  # unique on the page
    title: str
    caption: str
    panels: Sequence[tuple[str | None, go.Figure]]
    """Figures with their own titles; one without a title takes the whole width."""
    data: pl.DataFrame
    legend: str = ""  # HTML from `cell_legend` or `key_legend`


def swatch(style: Style) -> str:
    """The line and marker of a style, 34 by 14 pixels, in the colour of the page's edition."""
    return (
        f'<svg class="swatch" width="34" height="14" aria-hidden="true" style="--light:{style.color};'
        f'--dark:{style.dark}">{strokes(style, "currentColor", "var(--paper)")}</svg>'
    )


def strokes(style: Style, color: str, paper: str) -> str:
    """The inner SVG of a swatch in a colour on paper."""
    dashes = "" if style.dash == "solid" else f' stroke-dasharray="{style.dash.replace("px", "")}"'
    is_open, shape = style.marker.endswith("-open"), style.marker.removesuffix("-open").removesuffix("-dot")
    paint = f' fill="{paper}" stroke="{color}" stroke-width="1.6"' if is_open else f' fill="{color}"'
    inner = f'<path d="M1 7h32" stroke="{color}" stroke-width="2" fill="none"{dashes}/>'
    inner += _SHAPES[shape].format(paint=paint)
    return inner + (f'<circle cx="17" cy="7" r="1.4" fill="{paper}"/>' if style.marker.endswith("-dot") else "")


def cell_name(cell: str, label: str, appearance: Appearance) -> str:
    """A cell's swatch and name; the whole label is its tooltip."""
    style = appearance.styles[cell]
    mark = "" if style == REST else swatch(style)
    return tag("span", mark + tag("span", text(appearance.names[cell])), class_="name", title=label)


def cell_legend(cells: Sequence[str], appearance: Appearance) -> str:
    """Buttons that show and hide cells."""
    return key_legend([(cell, appearance.names[cell], appearance.styles[cell]) for cell in cells])


def key_legend(entries: Sequence[tuple[str, str, Style]]) -> str:
    """Buttons that show and hide groups of traces: `legendgroup`, name, style; without a group only the name."""
    buttons = [
        tag("button", swatch(style) + text(name), type="button", aria_pressed="true", data_key=key)
        if key
        else tag("span", swatch(style) + text(name), class_="key")
        for key, name, style in entries
    ]
    return tag("div", "".join(buttons), class_="legend", role="group", aria_label="Show or hide") if buttons else ""


def picture(shown: FigureBlock, *, folded: bool = False) -> str:
    """A figure as HTML: title, caption, legend, plots, and its data as a table and as CSV; `folded` below its title."""
    plots = [_plot(f"{shown.key}-{i}", title, figure) for i, (title, figure) in enumerate(shown.panels)]
    alone = len(plots) == 1 and shown.panels[0][0] is None
    body = plots[0] if alone else tag("div", "".join(plots), class_="panels")
    heading = tag("h3", text(shown.title))
    inner = tag("p", text(shown.caption), class_="caption") + shown.legend + body + _data(shown)
    whole = tag("details", tag("summary", heading) + inner, class_="fold") if folded else heading + inner
    return tag("figure", whole, id=shown.key, aria_label=shown.title)


def _plot(key: str, title: str | None, figure: go.Figure) -> str:
    least = least_width(figure)
    size = f"height:{figure.layout.height}px" + (f";min-width:{least}px" if least else "")
    heading = "" if title is None else tag("h4", text(title))
    place = tag("div", "", class_="plot", data_figure=f"{key}-json", style=size)
    if least:
        place = tag("div", place, class_="wide", tabindex="0")
    drawn = script_json(json.loads(figure.to_json()))
    return tag("div", f'{heading}{place}<script type="application/json" id="{text(key)}-json">{drawn}</script>')


def _data(shown: FigureBlock) -> str:
    frame = shown.data
    if frame.is_empty():
        return ""
    inner = data_table(frame, MOST_DATA_ROWS) + copy_button(csv(frame))
    return details(f"Data ({count(frame.height, 'row')})", inner)


def data_table(frame: pl.DataFrame, most: int) -> str:
    """The first `most` rows as a table."""
    rows = [[entry(value) for value in row] for row in frame.head(most).iter_rows()]
    cut = f"The first {most} of {count(frame.height, 'row')}; files and copies have all."
    return plain_table(frame.columns, rows) + (tag("p", text(cut), class_="note") if frame.height > most else "")


def csv(frame: pl.DataFrame) -> str:
    """The frame as CSV with full precision; lists are joined by '; '."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(pl.col(name).list.join("; ") for name in lists).pipe(csv_text)


def state(words: str) -> str:
    """A sentence that stands where something else is expected."""
    return tag("div", tag("p", text(words)), class_="state")


def draw_all(title: str, pictures: Iterable[FigureBlock]) -> str:
    """The pictures as HTML, folded; where they cannot be computed, `title` and why."""
    html, problem = catch_user_error(lambda: "".join(picture(each, folded=True) for each in pictures))
    return tag("div", tag("h3", text(title)) + state(str(problem)), class_="block") if html is None else html
