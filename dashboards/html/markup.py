"""HTML from text: everything that comes from a campaign is escaped here, and nowhere else."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple


def text(value: object) -> str:
    """`value` as text that HTML shows literally, in an element or in a quoted attribute."""
    return escape(str(value), quote=True)


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: no text in it can close the element or open a comment."""
    encoded = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def tag(name: str, inner: str, /, **attributes: str | None) -> str:
    """An element around `inner`, which is HTML already; attribute values are escaped, None leaves one out.

    `class_` and `data_value` become class and data-value.
    """
    written = [
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return f"<{name}{''.join(written)}>{inner}</{name}>"


def details(summary: str, inner: str) -> str:
    """A closed disclosure; `summary` is plain text and `inner` HTML."""
    return tag("details", tag("summary", text(summary)) + inner)


class HtmlColumn(NamedTuple):
    """One column of a table."""

    title: str
    class_: str | None = None
    """CSS classes of all its cells: 'number' aligns right, 'minor' disappears on narrow screens."""
    hint: str | None = None


class HtmlEntry(NamedTuple):
    """One cell of a table: HTML, and the value it is sorted by (None sorts last)."""

    html: str
    value: float | str | None = None


def sortable_table(
    columns: Sequence[HtmlColumn],
    rows: Sequence[Sequence[HtmlEntry]],
    *,
    caption: str,
    pinned: Sequence[Sequence[HtmlEntry]] = (),
) -> str:
    """A table that a click or Enter on a column's title sorts; `pinned` rows stay above the sorted ones."""
    heads = ""
    for column in columns:
        title = text(column.title).replace("_", "_<wbr>") + '<span class="arrow" aria-hidden="true"></span>'
        button = tag("button", title, type="button")
        heads += tag("th", button, scope="col", class_=column.class_, aria_sort="none", title=column.hint)
    bodies = tag("tbody", _rows(columns, pinned), class_="pinned") if pinned else ""
    bodies += tag("tbody", _rows(columns, rows), class_="sorted")
    inner = tag("caption", text(caption), class_="unseen") + tag("thead", tag("tr", heads)) + bodies
    return tag(
        "div", tag("table", inner, class_="sortable"), class_="scroll", tabindex="0", role="region", aria_label=caption
    )


def _rows(columns: Sequence[HtmlColumn], rows: Sequence[Sequence[HtmlEntry]]) -> str:
    html = ""
    for row in rows:
        cells = ""
        for place, (column, entry) in enumerate(zip(columns, row, strict=True)):
            value = None if entry.value is None else str(entry.value)
            name, scope = ("td", None) if place else ("th", "row")
            cells += tag(name, entry.html, scope=scope, class_=column.class_, data_value=value)
        html += tag("tr", cells)
    return html


def plain_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A small table of plain texts."""
    head = tag("thead", tag("tr", "".join(tag("th", text(title), scope="col") for title in titles)))
    body = "".join(tag("tr", "".join(tag("td", text(value)) for value in row)) for row in rows)
    return tag("div", tag("table", head + tag("tbody", body), class_="plain"), class_="scroll", tabindex="0")


def copy_button(csv: str) -> str:
    """A button that copies `csv`."""
    return tag("button", "Copy CSV", type="button", class_="copy", data_csv=csv)
