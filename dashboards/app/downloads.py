"""Downloads of a slot: its data, the SQL behind it, and the figure as one HTML file."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import plotly.io as pio
from flask import Response

from dashboards.app.page import AppPage, Slot, SlotContent
from dashboards.data.formatting import count, entry
from dashboards.data.user_errors import Unknown
from dashboards.figures.canvas import standalone
from dashboards.html.markup import plain_table, tag, text
from store.database.query_log import logged_queries
from store.export.formats import encode

if TYPE_CHECKING:
    from dashboards.app.engine import Engine

IN_PAGE: Final = ("table", "sql")
"""Shown on the page below a slot; the others are files."""

MOST_ROWS: Final = 500
"""Rows of a table inside a page; files have all."""


def download(engine: "Engine", campaign: str, page: str, name: str, end: str, search: str) -> Response:
    """One file of a slot, for the state that `search` says.

    Raises Unknown if there is no such page, slot or kind of file, or the state is refused; else as slots do.
    """
    engine.campaigns.root(campaign)
    found = engine.page_named(page)
    slot = _slot(found, name)
    if end not in _DATA and end not in _MADE:
        raise Unknown(f"a slot is had as {', '.join([*_DATA, *_MADE])}; got {end!r}")
    address = engine.address(campaign, found, search)
    with engine.campaigns.reading(campaign) as store:
        view = engine.view(store, campaign, found, address, whole=True)
        with logged_queries() as statements:
            shown = slot.make(view)
            own = shown.files[end]() if end in shown.files else None
    body = own or (encode(shown.data, end) if end in _DATA else _MADE[end](shown, slot, statements))
    response = Response(body, mimetype=_DATA.get(end, "text/html"))
    if end not in IN_PAGE:
        response.headers.set("Content-Disposition", "attachment", **_name_header(f"{campaign}-{name}.{end}"))
    return response


def _name_header(name: str) -> dict[str, str]:
    """Write a file name for a header (RFC 6266): quoted in ASCII, and encoded."""
    plain = re.sub(r"[^\w .,=+-]", "_", name)
    ascii_only = re.sub(r"[^ -~]", "_", plain)
    return {"filename": ascii_only} | ({"filename*": f"UTF-8''{quote(plain)}"} if plain != ascii_only else {})


def _slot(page: AppPage, name: str) -> Slot:
    for slot in page.slots:
        if slot.name == name:
            return slot
    raise Unknown(f"page {page.name!r} has no {name!r}; it has {', '.join(slot.name for slot in page.slots)}")


def _table(shown: SlotContent, slot: Slot, statements: list[str]) -> str:
    del slot, statements
    frame = shown.data
    rows = [[entry(value) for value in row] for row in frame.head(MOST_ROWS).iter_rows()]
    left = frame.height - len(rows)
    more = tag("p", text(f"The first {len(rows)} of {count(frame.height, 'row')}; the files have all.")) if left else ""
    return plain_table(frame.columns, rows) + more


def _sql(shown: SlotContent, slot: Slot, statements: list[str]) -> str:
    del shown, slot
    return tag("pre", text(";\n\n".join(statements)))


def _figure(shown: SlotContent, slot: Slot, statements: list[str]) -> str:
    del statements
    if shown.figure is None:
        raise Unknown(shown.message or f"{slot.title} has no figure")
    config = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
    figure = standalone(shown.figure, slot.title, legend=any(key.key for key in shown.legend))
    drawn: str = pio.to_html(figure, config=config, include_plotlyjs=True, full_html=False)
    head = tag("head", f'<meta charset="utf-8"><title>{text(slot.title)}</title>')
    body = tag("body", drawn + tag("p", text(shown.caption)), style="font-family: sans-serif; margin: 24px")
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


_DATA: Final = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "tex": "text/x-tex",
    "md": "text/markdown",
}
_MADE: Final[dict[str, Callable[[SlotContent, Slot, list[str]], str]]] = {"table": _table, "sql": _sql, "html": _figure}
