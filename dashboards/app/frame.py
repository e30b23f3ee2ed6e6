"""A page as Dash components: its controls and its slots."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from zlib import crc32

import plotly.graph_objects as go
import polars as pl
from dash import Patch

from ablate.dashboards.app.page import AS_ABOVE, AgGrid, Component, Control, Key, Slot, SlotContent, dcc, html
from ablate.dashboards.data.formatting import NARROW_LINES, split_caption
from ablate.dashboards.figures.canvas import least_width
from ablate.dashboards.html.blocks import strokes
from ablate.dashboards.theme.styles import PAPER, Style, dark_partners

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "plotlyServerURL": "",
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
}
FEW_ROWS: Final = 14  # a table with more rows scrolls
_ROW: Final = 32  # pixels of a row of a table
_BORDERS: Final = 18  # pixels that a table needs besides its columns: a scroll bar and borders
_MEASURED: Final = 200  # rows from which the width of a column is taken
_WIDEST: Final = 48  # letters of the widest column
_AT_FIRST: Final = {"width": "initialWidth", "flex": "initialFlex"}
"""Parts of a column that AG Grid takes once, so that a reader's width stays."""
_HIDDEN: Final = {"display": "none"}

FILES: Final = (("CSV", "csv"), ("Parquet", "parquet"), ("LaTeX", "tex"), ("Markdown", "md"), ("HTML", "html"))


class Display(NamedTuple):
    """How a reader wants to see figures."""

    partners: Mapping[str, str] | None  # dark colours by light ones; None in the light edition
    hide: Collection[str] = ()  # names in legends whose traces are not shown
    root: str = ""  # the campaign, for the Python of a figure


def controls(
    offered: Sequence[Control], values: Mapping[str, Any], main: Collection[str] | None = None
) -> list[Component]:
    """Put the controls of a page in a row, and others than `main` below, where "More" shows them.

    They are shown at first if one is changed.
    """
    shown, rest, changed = [], [], False
    for each in offered:
        value = values.get(each.field)
        known = main is None or each.kind == "hidden" or each.field in main
        if known or (each.field == "grid" and len(each.options) > 1):
            shown.append(_control(each, value))
        else:
            rest.append(_control(each, value))
            empty = not value and not each.usual
            changed |= not empty and value != each.usual and str(value) != next(iter(each.options), None)
    row = {"className": "controls", "role": "group"}
    if not rest:
        return [html.Div(shown, **row, **{"aria-label": "What is shown"})]
    pressed = {"aria-expanded": str(changed).lower(), "aria-controls": "more"}
    shown.append(html.Button("More", type="button", className="more", **pressed))
    below = html.Div(rest, **row, id="more", hidden=not changed, **{"aria-label": "More of what is shown"})
    return [html.Div(shown, **row, **{"aria-label": "What is shown"}), below]


def _control(control: Control, value: Any) -> Component:
    props = {**control_props(control, value), "id": {"type": "control", "field": control.field}}
    if control.kind == "hidden":
        return dcc.Checklist(**props, style=_HIDDEN)
    if control.kind == "code":  # the page's own script copies the text into the control when it is run
        text = dcc.Textarea(value=value or "", className="code-text", spellCheck=False)
        paint = html.Pre(className="code-paint", **{"aria-hidden": "true"})
        run = html.Button("Run", type="button", className="run", title="Ctrl+Enter", **{"data-field": control.field})
        name = dcc.Input(id="query-name", type="text", placeholder="name")
        save = [
            html.Label([html.Span("Name of the query", className="unseen"), name]),
            html.Button("Save", type="button", id="save-query", title="Keep this query in the campaign"),
            html.Span(id="query-saved", className="note", role="status"),
            dcc.Store(id="draft"),
        ]
        label = html.Label(
            [html.Span(control.label), html.Div([paint, text], className="code-box")], title=control.hint
        )
        buttons = html.Div([run, *save], className="code-buttons")
        names = html.Div(className="completions", role="status")  # filled by the page's own script
        return html.Div([label, names, buttons, dcc.Input(**props, type="hidden")], className="control code")
    if control.kind == "switch":
        return html.Div(dcc.Checklist(**props), className="control", title=control.hint)
    if control.kind in ("choice", "choices"):
        inner = dcc.Dropdown(**props)
    elif control.kind == "slider":
        inner = dcc.Slider(**props, updatemode="mouseup", tooltip={"always_visible": True, "placement": "bottom"})
    else:
        inner = dcc.Input(**props, type="text", debounce=True)
    label = control.label if control.span is None else "{} ({:g} to {:g})".format(control.label, *control.span)
    return html.Label([html.Span(label), inner], className=f"control {control.kind}", title=control.hint)


def control_props(control: Control, value: Any) -> dict[str, Any]:
    """Return the properties of the component of a control that follow its options and its value."""
    several = list(value) if isinstance(value, tuple | list) else [] if value is None else [value]
    if control.kind == "hidden":
        return {"options": several, "value": several}
    if control.kind == "switch":
        return {"options": [{"label": control.label, "value": "1"}], "value": ["1"] if value else []}
    if control.kind == "slider":
        low, high, step = control.span or (0.0, 1.0, 0.01)
        # without marks, which the number below the place of the slider would cover
        return {"min": low, "max": high, "step": step, "value": low if value is None else float(value), "marks": None}
    if control.kind not in ("choice", "choices"):
        return {"value": value}
    many = control.kind == "choices"
    # the browser forgets a value that is no option, and with it the sentence that says so
    unknown = {each: each for each in sorted(filter(None, several)) if each not in control.options}
    offered = [{"label": label, "value": each} for each, label in {**control.options, **unknown}.items()]
    shown = {"value": several if many else value, "multi": many, "clearable": many, "searchable": len(offered) > 8}
    return {"options": offered, **shown}


def section(slot: Slot, shown: SlotContent, address: str, display: Display) -> Component:
    """Show a slot with its words, legend and downloads; `address` is that of the page with its state."""
    key = f"slot-{slot.name}"
    props = changes(slot, shown, address, display)
    parts: list[Component] = [html.H2(slot.title, id=f"{key}-title")]
    parts.append(html.Div(**props["words"], id={"type": "words", "slot": slot.name}, className="words"))
    if slot.kind == "figure":
        image = {"toImageButtonOptions": {"format": "svg", "filename": slot.name}}
        # the height is that of the figure, which may change
        style = {"height": "auto", "minWidth": f"{0 if shown.figure is None else least_width(shown.figure)}px"}
        target = {"type": "figure", "slot": slot.name}
        graph = dcc.Graph(**props["figure"], config={**CONFIG, **image}, id=target, className="plot", style=style)
        clicked = dcc.Store(id={"type": "clicked", "slot": slot.name}, data=slot.sets)
        parts += [html.Div(graph, className="wide"), clicked]
    elif slot.kind == "table":
        rows = [{**pick._asdict(), "row": slot.row, "field": slot.selects} for pick in slot.picks]
        picks = dcc.Store(id={"type": "picks", "slot": slot.name}, data=rows)
        target = {"type": "picked", "slot": slot.name}
        picked = html.Div(id=target, className="picked", role="status", hidden=not slot.picks)
        parts += [picks, picked, _grid(slot, shown)]
    parts.append(html.Div(**props["files"], id={"type": "files", "slot": slot.name}, className="files"))
    return html.Section(parts, id=key, className=class_of(slot, shown), **{"aria-labelledby": f"{key}-title"})


def class_of(slot: Slot, shown: SlotContent) -> str:
    """Return the CSS classes of a slot. Selectors with `:has` would do, and take a third of the time of a page."""
    known = {"half": slot.half, "answered": bool(shown.answer), "repeated": shown.message == AS_ABOVE}
    return " ".join(["slot", *(name for name, holds in known.items() if holds)])


def changes(slot: Slot, shown: SlotContent, address: str, display: Display) -> dict[str, dict[str, Any]]:
    """Return the properties of the components of a slot that follow its content, by type of component."""
    props: dict[str, dict[str, Any]] = {
        "words": {"children": words(shown, display.hide, is_half=slot.half)},
        "files": {"children": files(slot, shown, address, display.root)},
    }
    if slot.kind == "figure":
        props["figure"] = {"figure": figure_of(shown, display)}
    elif slot.kind == "table":
        grid = Patch()
        grid["domLayout"] = _layout_of(shown)
        grid["pinnedTopRowData"] = shown.pinned.rows(named=True)
        rows = {
            "rowData": shown.data.rows(named=True),
            "columnDefs": columns_of(shown),
            "style": _style_of(slot, shown),
        }
        props["table"] = {**rows, "dashGridOptions": grid}
    return props


def words(shown: SlotContent, hide: Collection[str], *, is_half: bool = False) -> list[Component]:
    """Show the words of a slot and its legend; what does not fit into two lines is behind "i"."""
    parts: list[Component] = [html.P(shown.above, className="note")] if shown.above else []
    if shown.answer:
        first, _, second = _keep_units(shown.answer).partition("\n")
        parts += [html.P(first, className="answer"), *([html.P(second)] if second else [])]
    if shown.message:
        parts.append(html.P(_keep_units(shown.message), className="state"))
    if said := _keep_units(" ".join(filter(None, (shown.caption, shown.hint)))):
        first, rest = split_caption(said, NARROW_LINES) if is_half else split_caption(said)
        more = [html.Details([html.Summary("i", title="More about this"), html.P(rest)], className="info")]
        parts.append(html.Div([html.Span(first), *(more if rest else [])], className="caption"))
    if shown.legend:
        keys = [_key(each, shown=each.name not in hide) for each in shown.legend]
        parts.append(html.Div(keys, className="legend", role="group"))
    return [*parts, *shown.parts]


def _keep_units(text: str) -> str:
    """The text in which no line ends between a number and its per cent."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _key(entry: Key, *, shown: bool) -> Component:
    box = html.I(className="swatch", style={"--light": entry.style.color, "--dark": entry.style.dark})
    inner = [swatch(entry.style) if entry.key else box, html.Span(entry.name, className="name")]
    if entry.note:
        inner.append(html.Span(entry.note, className="note"))
    if not entry.key:
        return html.Span(inner, className="key")
    return html.Button(
        inner, type="button", className="key", **{"aria-pressed": str(shown).lower(), "data-key": entry.key}
    )


def swatch(style: Style) -> Component:
    """Draw the line and marker of a style for each edition; the page shows its own."""
    size = 'xmlns="http://www.w3.org/2000/svg" width="34" height="14"'
    pictures = []
    for edition, color, paper in (("light", style.color, PAPER), ("dark", style.dark, dark_partners([])[PAPER])):
        source = f"data:image/svg+xml,{quote(f'<svg {size}>{strokes(style, color, paper)}</svg>')}"
        pictures.append(html.Img(src=source, alt="", className=edition))
    return html.Span(pictures)


def figure_of(shown: SlotContent, display: Display) -> dict[str, Any]:
    """Return the figure of a slot as data; an empty one if it has none."""
    if shown.figure is None:  # ten pixels: less than that is none to plotly, which then takes 450
        axis, clear = {"visible": False}, "#00000000"
        layout = {"height": 10, "margin": {"t": 0, "b": 0}, "xaxis": axis, "yaxis": axis}
        return {"data": [], "layout": layout | {"paper_bgcolor": clear, "plot_bgcolor": clear}}
    own = dark_partners([key.style for key in shown.legend])
    drawn = recolour(shown.figure, None if display.partners is None else {**own, **display.partners})
    off = {each.key for each in shown.legend if each.name in display.hide}
    for trace in drawn["data"]:
        trace["visible"] = trace.get("legendgroup") not in off
    for axis in _axes(drawn["layout"]).values():
        _make_automatic(axis)
    return drawn


def identify_axes(shown: SlotContent) -> int:
    """Return a hash of the axes of a figure; the reader keeps the zoom while it stays the same."""
    layout = {} if shown.figure is None else shown.figure.layout.to_plotly_json()
    axes = [axis for _, axis in sorted(_axes(layout).items())]
    parts = [(axis.get("type"), axis.get("title", {}).get("text"), axis.get("categoryarray")) for axis in axes]
    return crc32(repr(parts).encode())


def change_figure(drawn: Mapping[str, Any]) -> Patch:
    """Change the data of a figure and the parts of its layout that follow them.

    A zoom stays on axes that find their range themselves. Other ranges, such as those of rows, follow the data.
    """
    patch = Patch()
    patch["data"] = drawn["data"]
    patch["layout"]["annotations"] = drawn["layout"].get("annotations", [])
    patch["layout"]["shapes"] = drawn["layout"].get("shapes", [])
    patch["layout"]["height"] = drawn["layout"].get("height")
    for name, axis in _axes(drawn["layout"]).items():
        follows = _FOLLOWING_OF_AXES if "autorangeoptions" in axis else {*_FOLLOWING_OF_AXES, "range"}
        for part in follows & axis.keys():
            patch["layout"][name][part] = axis[part]
    return patch


_FOLLOWING_OF_AXES: Final = frozenset({"autorangeoptions", "tickvals", "ticktext"})
"""Parts of an axis that apply until the reader zooms."""


def _axes(layout: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: axis for name, axis in layout.items() if name.startswith(("xaxis", "yaxis"))}


_CONSTANT: Final = 0.03
"""Decades of a log axis that shows one value, of `value_axis`, and no more."""


def _make_automatic(axis: dict[str, Any]) -> None:
    """Let an axis with a range follow new results until the reader zooms.

    plotly takes another `range` for the reader's own zoom; other ends of an automatic one leave a zoom as it is.
    """
    low, high = axis.get("range") or (None, None)
    if axis.get("type") not in ("linear", "log") or low is None or high is None or low >= high:
        return
    if axis["type"] == "log" and high - low < _CONSTANT:
        return  # plotly would zoom into the rounding of equal values
    ends = (10**low, 10**high) if axis["type"] == "log" else (low, high)
    del axis["range"]
    axis |= {"autorange": True, "autorangeoptions": {"include": ends, "clipmin": ends[0], "clipmax": ends[1]}}


def _grid(slot: Slot, shown: SlotContent) -> Component:
    grid_options = {
        "animateRows": False,
        "ensureDomOrder": True,
        "rowHeight": _ROW,
        "headerHeight": _ROW + 4,
        "enableCellTextSelection": True,
        "suppressFieldDotNotation": True,  # names of measurements have dots
        "domLayout": _layout_of(shown),
        "pinnedTopRowData": shown.pinned.rows(named=True),
        **({"rowSelection": {"mode": "multiRow"}} if slot.picks else {}),
    }
    return AgGrid(
        rowData=shown.data.rows(named=True),
        columnDefs=columns_of(shown),
        **({"selectedRows": {"ids": list(shown.selected)}} if shown.selected else {}),
        **({"getRowId": f"params.data.{slot.row}"} if slot.row else {}),
        **({"eventListeners": {"sortChanged": [f"ablateSort(params, {slot.sorts!r})"]}} if slot.sorts else {}),
        id={"type": "table", "slot": slot.name},
        dashGridOptions=grid_options,
        defaultColDef={"sortable": True, "filter": True, "resizable": True},
        className="ag-theme-quartz",
        style=_style_of(slot, shown),
    )


def columns_of(shown: SlotContent) -> list[dict[str, Any]]:
    """Define the columns of a table for AG Grid; one that is sent again keeps a reader's width."""
    sized = [_add_width(column, shown.data) for column in shown.columns]
    return [{_AT_FIRST.get(part, part): said for part, said in column.items()} for column in sized]


def _add_width(column: Mapping[str, Any], data: pl.DataFrame) -> dict[str, Any]:
    """Add a title and a width that fits the entries, unless the column sets them."""
    name = str(column["field"])
    sized = {"headerName": name, **column}
    if "width" in sized or "flex" in sized or name not in data.columns:
        return sized
    texts = data[name].head(_MEASURED).to_list()
    letters = max([0, *(9 if isinstance(text, float) else len(str(text)) for text in texts)])
    return {**sized, "width": 44 + 8 * min(max(letters, len(sized["headerName"]) + 3), _WIDEST)}


def _layout_of(shown: SlotContent) -> str:
    return "autoHeight" if shown.data.height <= FEW_ROWS else "normal"


def _style_of(slot: Slot, shown: SlotContent) -> dict[str, Any]:
    """Set the height of a table, and its width if no column grows; hide it if it has no columns."""
    widths = [_add_width(column, shown.data).get("width") for column in shown.columns]
    fixed = None if None in widths or slot.picks else f"{sum(filter(None, widths)) + _BORDERS}px"
    height = None if shown.data.height <= FEW_ROWS else "max(480px, 68vh)"
    return {"height": height, "maxWidth": fixed, **({} if shown.columns else _HIDDEN)}


def files(slot: Slot, shown: SlotContent, address: str, root: str) -> list[Component]:
    """Link the data of a slot, its SQL, its figure and the Python that draws it; a message has only its SQL."""
    if slot.kind == "words":
        return []
    path, mark, search = address.partition("?")
    start, tail = f"/files{path}/{slot.name}", f"{mark}{search}"
    drawn = shown.figure is not None
    bare = not drawn and shown.data.is_empty() and not shown.parts
    frames = [
        html.Details([html.Summary(label), html.Div(**{"data-source": f"{start}.{end}{tail}"})])
        for label, end in (("Data", "table"), ("SQL", "sql"))[bare:]
    ]
    if bare:
        return frames
    kinds = FILES if drawn else FILES[:-1]
    links = [html.A(label, href=f"{start}.{end}{tail}", download="") for label, end in kinds]
    if drawn:
        source = {"data-figure": f"{start}.json{tail}"}
        links += [html.Button(end.upper(), type="button", **{"data-image": end}, **source) for end in ("png", "svg")]
        place = f"{path.split('/', 2)[2]}/{slot.name}{tail}"
        code = f"from ablate import Campaign, dashboard_figure\n\ndashboard_figure(Campaign({root!r}), {place!r})\n"
        tooltip = "Copy the Python that draws this figure"
        links.append(html.Button("Copy Python", type="button", title=tooltip, **{"data-copy": code}))
    return [*frames, html.Span("Download: ", className="note"), *links]


def sentence(text: str) -> Component:
    """Say why a page cannot be shown."""
    return html.Div([html.H1("This page cannot be shown"), html.P(text, className="state alarm")])


_COLOR: Final = re.compile(r"#[0-9a-f]{6}([0-9a-f]{2})?")
_TEXTS: Final = frozenset({"text", "ticktext", "name", "hovertemplate", "x", "y", "z", "customdata"})
"""Parts of a figure that are data, in which no text is a colour."""


def recolour(figure: go.Figure, partners: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the figure as plain data; with `partners` (light colour -> dark one) in the dark edition."""
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
