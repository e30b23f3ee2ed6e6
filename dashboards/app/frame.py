"""A page as Dash components: its controls and its slots."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import plotly.graph_objects as go
import polars as pl

from dashboards.app.page import AgGrid, Component, Key, Slot, SlotContent, dcc, html
from dashboards.app.parts import Control
from dashboards.data.formatting import split_caption
from dashboards.figures.canvas import least_width
from dashboards.html.blocks import strokes
from dashboards.theme.styles import PAPER, Style, dark_partners

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "plotlyServerURL": "",
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg"},
}
FEW_ROWS: Final = 14
"""A table of more scrolls."""

_ROW: Final = 32
"""Pixels of a row of a table."""

_MEASURED: Final = 200
"""Rows that say how wide a column is."""

_WIDEST: Final = 48
"""Letters."""

_AT_FIRST: Final = {"width": "initialWidth", "flex": "initialFlex"}
"""Parts of a column that AG Grid takes once."""

_HIDDEN: Final = {"display": "none"}
"""A message stands for a table without columns."""

FILES: Final = (("CSV", "csv"), ("Parquet", "parquet"), ("LaTeX", "tex"), ("Markdown", "md"), ("HTML", "html"))


class Looks(NamedTuple):
    """How a reader wants to see figures."""

    partners: Mapping[str, str] | None
    """Dark colours by light ones; None in the light edition."""
    hide: Collection[str]
    """Names in legends whose traces are not shown."""


def controls(given: Sequence[Control], values: Mapping[str, Any], main: Collection[str] | None = None) -> Component:
    """The controls of a page in a row, each with its label; those that are not `main` are behind "More".

    More is open if one of them has another value than the usual one.
    """
    hidden = [] if main is None else [each for each in given if each.kind != "hidden" and not _is_main(each, main)]
    shown = [_control(each, values.get(each.field)) for each in given if each not in hidden]
    if hidden:
        rest = [_control(each, values.get(each.field)) for each in hidden]
        changed = any(_is_changed(each, values.get(each.field)) for each in hidden)
        more = html.Div(rest, className="controls")
        shown.append(html.Details([html.Summary("More"), more], className="more", open=changed))
    return html.Div(shown, className="controls", role="group", **{"aria-label": "What is shown"})


def _is_main(control: Control, main: Collection[str]) -> bool:
    return len(control.options) > 1 if control.field == "grid" else control.field in main


def _is_changed(control: Control, value: Any) -> bool:
    unset = value in (None, (), "", False) and control.usual in (None, (), "", False)
    return not unset and value != control.usual and str(value) != next(iter(control.options), None)


def _control(control: Control, value: Any) -> Component:
    key = {"type": "control", "field": control.field}
    many, several = control.kind == "choices", list(value) if isinstance(value, tuple | list) else value
    if control.kind == "hidden":
        kept = several if isinstance(several, list) else [] if value is None else [value]
        return dcc.Checklist(options=kept, value=kept, id=key, style=_HIDDEN)
    if control.kind == "code":
        return _code(control, key, value)
    if control.kind == "switch":
        inner = dcc.Checklist(options=[{"label": control.label, "value": "1"}], value=["1"] if value else [], id=key)
        return html.Div(inner, className="control", title=control.hint)
    if control.kind in ("choice", "choices"):
        # the browser forgets a value that is no option, and with it the sentence that says so
        unknown = set(several or () if many else filter(None, [value])) - control.options.keys()
        options = options_of(control) + [{"label": each, "value": each} for each in sorted(unknown)]
        shown = (several or []) if many else value
        found = {"options": options, "value": shown, "multi": many, "clearable": many, "searchable": len(options) > 8}
        inner = dcc.Dropdown(id=key, **found)
    elif control.kind == "slider":
        inner = _slider(control, key, value)
    else:
        inner = dcc.Input(value=value, type="number" if control.kind == "number" else "text", debounce=True, id=key)
    return html.Label([html.Span(control.label), inner], className=f"control {control.kind}", title=control.hint)


def options_of(control: Control) -> list[dict[str, str]]:
    """Convert options to those of a drop-down."""
    return [{"label": label, "value": value} for value, label in control.options.items()]


def _slider(control: Control, key: Mapping[str, str], value: Any) -> Component:
    low, high, step = control.span or (0.0, 1.0, 0.01)
    return dcc.Slider(
        min=low,
        max=high,
        step=step,
        value=low if value is None else float(value),
        marks={low: f"{low:g}", high: f"{high:g}"},
        updatemode="mouseup",
        tooltip={"always_visible": True, "placement": "bottom"},
        id=key,
    )


def _code(control: Control, key: Mapping[str, str], value: Any) -> Component:
    """A text of several lines; the page's own script copies it into the control when it is run."""
    text = dcc.Textarea(value=value or "", className="code-text", spellCheck=False)
    run = html.Button("Run", type="button", className="run", title="Ctrl+Enter", **{"data-field": control.field})
    label = html.Label([html.Span(control.label), text], title=control.hint)
    inner = dcc.Input(value=value, type="hidden", id=key)
    return html.Div([label, run, inner], className="control code")


def slot(given: Slot, shown: SlotContent, address: str, look: Looks) -> Component:
    """A figure or table with its words, legend and downloads; `address` is that of the page with its state."""
    key = f"slot-{given.name}"
    parts: list[Component] = [html.H2(given.title, id=f"{key}-title")]
    parts.append(html.Div(words(shown, look.hide), id={"type": "words", "slot": given.name}, className="words"))
    if given.kind == "figure":
        parts.append(_graph(given, shown, look))
        parts.append(dcc.Store(id={"type": "clicked", "slot": given.name}, data=given.sets))
    elif given.kind == "table":
        parts.append(_grid(given, shown))
        parts.append(dcc.Store(id={"type": "picks", "slot": given.name}, data=_picks(given)))
        parts.append(html.Div(id={"type": "picked", "slot": given.name}, className="picked", role="status"))
    parts.append(html.Div(files(given, shown, address), id={"type": "files", "slot": given.name}, className="files"))
    kind = "slot half" if given.half else "slot"
    return html.Section(parts, id=key, className=kind, **{"aria-labelledby": f"{key}-title"})


def words(shown: SlotContent, hide: Collection[str]) -> list[Component]:
    """Show the words of a slot and its legend."""
    found: list[Component] = []
    if shown.above:
        found.append(html.P(shown.above, className="note"))
    if shown.answer:
        first, _, second = shown.answer.partition("\n")
        found.append(html.P(first, className="answer"))
        found += [html.P(second)] if second else []
    if shown.message:
        found.append(html.P(shown.message, className="state"))
    if said := " ".join(filter(None, (shown.caption, shown.hint))):
        first, rest = split_caption(said)
        more = [html.Details([html.Summary("i", title="More about this"), html.P(rest)], className="info")]
        found.append(html.Div([html.Span(first), *(more if rest else [])], className="caption"))
    if shown.legend:
        keys = [_key(each, shown=each.name not in hide) for each in shown.legend]
        found.append(html.Div(keys, className="legend", role="group"))
    return [*found, *shown.parts]


def _key(given: Key, *, shown: bool) -> Component:
    box = html.I(className="swatch", style={"--light": given.style.color, "--dark": given.style.dark})
    inner = [swatch(given.style) if given.key else box, html.Span(given.name, className="name")]
    if given.note:
        inner.append(html.Span(given.note, className="note"))
    if not given.key:
        return html.Span(inner, className="key")
    told = {"aria-pressed": str(shown).lower(), "data-key": given.key}
    return html.Button(inner, type="button", className="key", **told)


def swatch(style: Style) -> Component:
    """The line and marker of a style, a picture for each edition; the page shows its own."""
    editions = (("light", style.color, PAPER), ("dark", style.dark, dark_partners([])[PAPER]))
    size = 'xmlns="http://www.w3.org/2000/svg" width="34" height="14"'
    pictures = {
        name: f"data:image/svg+xml,{quote(f'<svg {size}>{strokes(style, color, paper)}</svg>')}"
        for name, color, paper in editions
    }
    return html.Span([html.Img(src=source, alt="", className=name) for name, source in pictures.items()])


def figure_of(shown: SlotContent, look: Looks) -> dict[str, Any]:
    """The figure of a slot as data; an empty one where it shows none."""
    if shown.figure is None:  # ten pixels: less than that is none to plotly, which then takes 450
        axis, clear = {"visible": False}, "#00000000"
        colours = {"paper_bgcolor": clear, "plot_bgcolor": clear}
        return {
            "data": [],
            "layout": {"height": 10, "margin": {"t": 0, "b": 0}, "xaxis": axis, "yaxis": axis} | colours,
        }
    own = dark_partners([key.style for key in shown.legend])
    found = recolour(shown.figure, None if look.partners is None else {**own, **look.partners})
    off = {each.key for each in shown.legend if each.name in look.hide}
    for trace in found["data"]:
        trace["visible"] = trace.get("legendgroup") not in off
    for axis in axes_of(found["layout"]).values():
        _let_follow(axis)
    return found


def axes_of(layout: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The axes of a layout, by name."""
    return {name: axis for name, axis in layout.items() if name.startswith(("xaxis", "yaxis"))}


def _let_follow(axis: dict[str, Any]) -> None:
    """An axis with a range shows it until the reader zooms, and the one of newer results after them.

    plotly takes another `range` for the reader's own zoom; other ends of an automatic one leave a zoom as it is.
    """
    low, high = axis.get("range") or (None, None)
    if axis.get("type") not in ("linear", "log") or low is None or high is None or low >= high:
        return
    ends = (10**low, 10**high) if axis["type"] == "log" else (low, high)
    del axis["range"]
    axis |= {"autorange": True, "autorangeoptions": {"include": ends, "clipmin": ends[0], "clipmax": ends[1]}}


def _graph(given: Slot, shown: SlotContent, look: Looks) -> Component:
    named = {**CONFIG, "toImageButtonOptions": {**CONFIG["toImageButtonOptions"], "filename": given.name}}
    least = 0 if shown.figure is None else least_width(shown.figure)
    graph = dcc.Graph(
        figure=figure_of(shown, look),
        config=named,
        id={"type": "figure", "slot": given.name},
        className="plot",
        style={"height": "auto", "minWidth": f"{least}px"},  # the height is that of the figure, which may change
    )
    return html.Div(graph, className="wide")


def _grid(given: Slot, shown: SlotContent) -> Component:
    return AgGrid(
        rowData=shown.data.rows(named=True),
        columnDefs=columns_of(shown),
        **({"selectedRows": {"ids": list(shown.selected)}} if shown.selected else {}),
        **({"getRowId": f"params.data.{given.row}"} if given.row else {}),
        id={"type": "table", "slot": given.name},
        dashGridOptions={
            "animateRows": False,
            "ensureDomOrder": True,
            "rowHeight": _ROW,
            "headerHeight": _ROW + 4,
            "enableCellTextSelection": True,
            "suppressFieldDotNotation": True,  # names of measurements have dots
            **({"rowSelection": {"mode": "multiRow"}} if given.picks else {}),
            "domLayout": layout_of(shown),
        },
        defaultColDef={"sortable": True, "filter": True, "resizable": True},
        className="ag-theme-quartz",
        style=style_of(shown),
    )


def _picks(given: Slot) -> list[dict[str, Any]]:
    """Describe for the script of the page where selected rows lead."""
    return [{**pick._asdict(), "row": given.row, "field": given.selects} for pick in given.picks]


def columns_of(shown: SlotContent) -> list[dict[str, Any]]:
    """The columns of a table as AG Grid takes them; one that stays when they are sent again keeps a reader's width."""
    sized = [_add_width(column, shown.data) for column in shown.columns]
    return [{_AT_FIRST.get(part, part): said for part, said in column.items()} for column in sized]


def layout_of(shown: SlotContent) -> str:
    """Whether a table is as high as its rows, or scrolls."""
    return "autoHeight" if shown.data.height <= FEW_ROWS else "normal"


def style_of(shown: SlotContent) -> dict[str, Any]:
    """Set the height of a table; hide it if it has no columns."""
    return {"height": None if shown.data.height <= FEW_ROWS else "480px", **({} if shown.columns else _HIDDEN)}


def _add_width(column: Mapping[str, Any], data: pl.DataFrame) -> dict[str, Any]:
    """Add a title and a width that fits the entries, unless the column sets them."""
    name = str(column["field"])
    found = {"headerName": name, **column}
    if "width" in found or "flex" in found or name not in data.columns:
        return found
    texts = data[name].head(_MEASURED).to_list()
    letters = max([0, *(9 if isinstance(text, float) else len(str(text)) for text in texts)])
    width = 44 + 8 * min(max(letters, len(found["headerName"]) + 3), _WIDEST)
    return {**found, "width": width}


def files(given: Slot, shown: SlotContent, address: str) -> list[Component]:
    """Link the data of a slot, its SQL and its figure; a message has only its SQL."""
    if given.kind == "words":
        return []
    path, _, search = address.partition("?")
    tail = f"?{search}" if search else ""
    inside = (("SQL", "sql"),) if is_sentence(shown) else (("Data", "table"), ("SQL", "sql"))
    frames = [
        html.Details([html.Summary(label), html.Div(**{"data-source": f"/files{path}/{given.name}.{end}{tail}"})])
        for label, end in inside
    ]
    if is_sentence(shown):
        return frames
    drawn = given.kind == "figure" and shown.figure is not None
    kinds = FILES if drawn else FILES[:-1]
    links = [html.A(label, href=f"/files{path}/{given.name}.{end}{tail}", download="") for label, end in kinds]
    if drawn:
        links += [html.Button(end.upper(), type="button", **{"data-image": end}) for end in ("png", "svg")]
    return [*frames, html.Span("Download: ", className="note"), *links]


def is_sentence(shown: SlotContent) -> bool:
    """Whether there is nothing to show but why."""
    return shown.figure is None and shown.data.is_empty() and not shown.parts


def sentence(text: str) -> Component:
    """A page that cannot be shown says why."""
    return html.Div([html.H1("This page cannot be shown"), html.P(text, className="state alarm")])


Theme = Literal["light", "dark"]

_COLOR: Final = re.compile(r"#[0-9a-f]{6}([0-9a-f]{2})?")
_TEXTS: Final = frozenset({"text", "ticktext", "name", "hovertemplate", "x", "y", "z", "customdata"})
"""Parts of a figure that are data, in which no text is a colour."""


def recolour(figure: go.Figure, partners: Mapping[str, str] | None) -> dict[str, Any]:
    """The figure as plain data; with `partners` (light colour -> dark one) in the dark edition."""
    plain: dict[str, Any] = json.loads(figure.to_json())
    return plain if partners is None else _darken(plain, partners)


def _darken(value: Any, partners: Mapping[str, str]) -> Any:
    if isinstance(value, str) and _COLOR.fullmatch(value):
        return partners.get(value[:7], value[:7]) + value[7:]  # #rrggbbaa keeps its alpha
    if isinstance(value, list):
        return [_darken(each, partners) for each in value]
    if isinstance(value, dict):
        return {name: each if name in _TEXTS else _darken(each, partners) for name, each in value.items()}
    return value
