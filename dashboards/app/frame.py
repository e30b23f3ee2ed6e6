"""What stands around the slots of a page, and the slots themselves, as Dash components."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from dashboards.app.components import AgGrid, Component, dcc, html
from dashboards.app.edition import edition
from dashboards.app.page import Control, Key, Page, Shown, Slot
from dashboards.theme import Style

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "plotlyServerURL": "",
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg"},
}
TICK_MS: Final = 3000
FILES: Final = (("CSV", "csv"), ("Parquet", "parquet"), ("LaTeX", "tex"), ("Markdown", "md"), ("HTML", "html"))


class Looks(NamedTuple):
    """How a reader wants to see figures."""

    partners: Mapping[str, str] | None
    """Dark colours by light ones; None in the light edition."""
    hide: Collection[str]
    """Names in legends whose traces are not shown."""


def shell() -> Component:
    """The whole document; `page` is filled by navigation."""
    return html.Div(
        [
            html.A("Skip to the content", href="#page", className="skip"),
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="seen", data={}),
            dcc.Store(id="theme"),
            dcc.Interval(id="tick", interval=TICK_MS),
            html.Header(id="top"),
            html.P(id="said", className="unseen", role="status"),
            html.Main(id="page", tabIndex="-1"),
        ]
    )


def top(campaigns: Sequence[str], campaign: str | None, pages: Sequence[Page], page: str | None) -> list[Component]:
    """The bar above every page: campaign, pages, theme."""
    here = campaign or (campaigns[0] if campaigns else "")
    links = [
        html.A(
            each.title,
            href=f"/{quote(here)}/{each.name}",
            className="here" if each.name == page else "",
            title=f"{each.about} (g {each.letter})",
            **({"aria-current": "page"} if each.name == page else {}),
        )
        for each in pages
    ]
    names = [
        html.A(
            name, href=f"/{quote(name)}/{page or pages[0].name}", className="here" if name == campaign else "campaign"
        )
        for name in campaigns
    ]
    switch = html.Button("Light / dark", id="switch", type="button", n_clicks=0, title="Other colours (t)")
    return [
        html.Div(
            [html.A("ablate", href="/", className="mark"), html.Nav(names, **{"aria-label": "Campaigns"}), switch]
        ),
        html.Nav(links, **{"aria-label": "Pages"}, className="pages") if here else html.Div(),
    ]


def controls(given: Sequence[Control], values: Mapping[str, Any]) -> Component:
    """The controls of a page in a row; each has its label."""
    shown = [_control(each, values.get(each.field)) for each in given]
    hidden = list(values.get("hide") or ())
    legend = dcc.Checklist(
        options=hidden, value=hidden, id={"type": "control", "field": "hide"}, style={"display": "none"}
    )
    return html.Div([*shown, legend], className="controls", role="group")


def _control(control: Control, value: Any) -> Component:
    key = {"type": "control", "field": control.field}
    options = [{"label": option.label, "value": option.value} for option in control.options]
    if control.kind == "switch":
        inner = dcc.Checklist(options=[{"label": control.label, "value": "1"}], value=["1"] if value else [], id=key)
        return html.Div(inner, className="control", title=control.hint)
    if control.kind in ("choice", "choices"):
        many = control.kind == "choices"
        shown = list(value or ()) if many else value
        inner = dcc.Dropdown(
            options=options, value=shown, multi=many, clearable=many, id=key, searchable=len(options) > 8
        )
    else:
        kind = "number" if control.kind == "number" else "text"
        inner = dcc.Input(value=value, type=kind, debounce=True, id=key)
    return html.Label([html.Span(control.label), inner], className="control", title=control.hint)


def slot(given: Slot, shown: Shown, address: str, look: Looks) -> Component:
    """A figure or table with its words, legend and downloads; `address` is that of the page with its state."""
    key = f"slot-{given.name}"
    parts: list[Component] = [html.H2(given.title, id=f"{key}-title")]
    parts.append(html.Div(words(shown, look.hide), id={"type": "words", "slot": given.name}))
    if given.kind == "figure":
        parts.append(_graph(given, shown, look))
    elif given.kind == "table":
        parts.append(_grid(given, shown))
    parts.append(html.Div(files(given, address), id={"type": "files", "slot": given.name}, className="files"))
    return html.Section(parts, id=key, className="slot", **{"aria-labelledby": f"{key}-title"})


def words(shown: Shown, hide: Collection[str]) -> list[Component]:
    """What a reader must know of a slot, and its legend."""
    found: list[Component] = []
    if shown.message:
        found.append(html.P(shown.message, className="state"))
    if shown.caption:
        found.append(html.P(shown.caption, className="caption"))
    if shown.legend:
        found.append(
            html.Div(
                [_key(each, shown=each.name not in hide) for each in shown.legend], className="legend", role="group"
            )
        )
    return found


def _key(given: Key, *, shown: bool) -> Component:
    inner = [swatch(given.style), html.Span(given.name)]
    if not given.key:
        return html.Span(inner, className="key")
    return html.Button(
        inner, type="button", className="key", **{"aria-pressed": str(shown).lower(), "data-key": given.key}
    )


def swatch(style: Style) -> Component:
    """The colour of a style as a small square; marker and dash are in the figure."""
    return html.I(className="swatch", style={"--light": style.color, "--dark": style.dark})


def figure_of(shown: Shown, look: Looks) -> dict[str, Any]:
    """The figure of a slot as data; an empty one where it shows none."""
    if shown.figure is None:
        return {"data": [], "layout": {"height": 0, "xaxis": {"visible": False}, "yaxis": {"visible": False}}}
    found = edition(shown.figure, look.partners)
    off = {each.key for each in shown.legend if each.name in look.hide}
    for trace in found["data"]:
        trace["visible"] = trace.get("legendgroup") not in off
    return found


def _graph(given: Slot, shown: Shown, look: Looks) -> Component:
    named = {**CONFIG, "toImageButtonOptions": {**CONFIG["toImageButtonOptions"], "filename": given.name}}
    figure = figure_of(shown, look)
    return dcc.Graph(
        figure=figure,
        config=named,
        id={"type": "figure", "slot": given.name},
        className="plot",
        style={"height": f"{figure['layout'].get('height', 0)}px"},
    )


def _grid(given: Slot, shown: Shown) -> Component:
    return AgGrid(
        rowData=shown.data.rows(named=True),
        columnDefs=list(shown.columns),
        id={"type": "table", "slot": given.name},
        dashGridOptions={"animateRows": False, "ensureDomOrder": True, "enableCellTextSelection": True},
        defaultColDef={"sortable": True, "filter": True, "resizable": True},
        className="ag-theme-quartz",
        columnSize="autoSize",
    )


def files(given: Slot, address: str) -> list[Component]:
    """Links to what the slot shows: its data, the SQL behind it, the figure alone."""
    path, _, search = address.partition("?")
    tail = f"?{search}" if search else ""
    kinds = FILES if given.kind == "figure" else FILES[:-1]
    links = [html.A(label, href=f"/files{path}/{given.name}.{end}{tail}") for label, end in kinds]
    frames = [
        html.Details([html.Summary(label), html.Div(**{"data-source": f"/files{path}/{given.name}.{end}{tail}"})])
        for label, end in (("Data", "table"), ("SQL", "sql"))
    ]
    return [*frames, html.Span("Download: ", className="note"), *links]


def page_of(
    given: Page, choices: Sequence[Control], values: Mapping[str, Any], slots: Sequence[Component]
) -> Component:
    """A page: what it answers, its controls, its slots."""
    return [html.H1(given.title), html.P(given.about, className="about"), controls(choices, values), *slots]


def sentence(text: str) -> Component:
    """A page that cannot be shown says why."""
    return html.Div([html.H1("This page cannot be shown"), html.P(text, className="state alarm")])
