"""Downloads of a slot: its data, the SQL behind it, and the figure as one HTML file."""

import re
from collections.abc import Collection, Sequence
from typing import Final

import plotly.graph_objects as go
import plotly.io as pio
import polars as pl
from flask import Response

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.engine import Engine
from ablate.dashboards.app.frame import Display, figure_of
from ablate.dashboards.app.page import AppPage, Slot, SlotContent
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.data.formatting import split_caption
from ablate.dashboards.data.latex_file import latex_file
from ablate.dashboards.data.user_errors import Unknown, require
from ablate.dashboards.figures.canvas import standalone
from ablate.dashboards.html.blocks import data_table
from ablate.dashboards.html.document import plotly_js
from ablate.dashboards.html.markup import tag, text
from ablate.store import Campaign
from ablate.store.database.query_log import logged_queries
from ablate.store.export.formats import encode

IN_PAGE: Final = ("table", "sql", "json")
"""Shown on the page below a slot, or made a picture there; the others are files."""

MOST_ROWS: Final = 500
"""Rows of a table inside a page; files have all."""


def download(engine: Engine, campaign: str, page: str, name: str, end: str, search: str) -> Response:
    """One file of a slot, for the state that `search` says.

    Raises Unknown if there is no such page, slot or kind of file, or the state is refused; else as slots do.
    """
    engine.campaigns.root(campaign)
    app_page, slot = _find_slot(engine, page, name)
    require("a slot", "file", end, _TYPES)
    address = engine.address(campaign, app_page, search)
    with engine.campaigns.reading(campaign) as store:
        view = engine.view(store, campaign, app_page, address, whole=True)
        with logged_queries() as statements:
            shown = slot.make(view)
            own = shown.files[end]() if end in shown.files else None
    body = own or _encode(shown, slot.title, end, statements, address.hide)
    response = Response(body, mimetype=_TYPES[end])
    if end not in IN_PAGE:
        plain = re.sub(r"[^\w .,=+-]", "_", f"{campaign}-{name}.{end}", flags=re.ASCII)
        response.headers.set("Content-Disposition", "attachment", filename=plain)
    return response


def _find_slot(engine: Engine, page: str, name: str) -> tuple[AppPage, Slot]:
    app_page = engine.page_named(page)
    slots = {slot.name: slot for slot in app_page.slots}
    return app_page, slots[require(f"page {page!r}", "slot", name, slots)]


def figure_at(campaign: Campaign, place: str) -> go.Figure:
    """Draw a figure by page, slot and state: "curves/curves?by=operator". Raises Unknown; else as slots do."""
    path, _, search = place.partition("?")
    engine = Engine(Campaigns([campaign.root]), app_pages())
    name = engine.campaigns.names[0]
    page_name, _, slot_name = path.partition("/")
    page, slot = _find_slot(engine, page_name, slot_name)
    address = engine.address(name, page, search)
    shown = slot.make(engine.view(campaign.store, name, page, address))
    return _draw_standalone(shown, slot.title, address.hide)


def _draw_standalone(shown: SlotContent, title: str, hide: Collection[str]) -> go.Figure:
    if shown.figure is None:
        raise Unknown(shown.message or f"{title} has no figure")
    drawn = go.Figure(figure_of(shown, Display(None, hide)))
    return standalone(drawn, title, legend=any(key.key for key in shown.legend))


def _encode(shown: SlotContent, title: str, end: str, statements: Sequence[str], hide: Collection[str]) -> bytes | str:
    """Write a file; the measure is in columns of data files, and in the caption of LaTeX."""
    if end == "sql":
        return tag("pre", text(";\n\n".join(statements)))
    if end == "table":
        return data_table(shown.data, MOST_ROWS)
    if end == "json":
        return str(_draw_standalone(shown, title, hide).to_json())
    if end == "html":
        return _figure(_draw_standalone(shown, title, hide), title, shown.caption)
    if end == "tex":
        of = shown.measured
        measure = f" {', '.join(filter(None, (of['measure'], of['unit'])))} ({of['better']} is better)." if of else ""
        said = split_caption(shown.caption)[0]
        hidden = [each["field"] for each in shown.columns if each.get("hide")]
        return latex_file(shown.data.drop(hidden), f"{title}. {said}{'' if 'is better' in said else measure}")
    constant = [pl.lit(value).alias(name) for name, value in shown.measured.items() if name not in shown.data.columns]
    return encode(shown.data.with_columns(constant) if end in ("csv", "parquet") else shown.data, end)


def _figure(figure: go.Figure, title: str, caption: str) -> str:
    config = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
    drawn: str = pio.to_html(figure, config=config, include_plotlyjs=False, full_html=False)
    head = tag("head", f'<meta charset="utf-8"><title>{text(title)}</title><script>{plotly_js()}</script>')
    body = tag("body", drawn + tag("p", text(caption)), style="font-family: sans-serif; margin: 24px")
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


_TYPES: Final = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "tex": "text/x-tex",
    "md": "text/markdown",
    "json": "application/json",
    **dict.fromkeys(("html", "table", "sql"), "text/html"),
}
