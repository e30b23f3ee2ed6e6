"""The tables, views and macros of a store beside the SQL of a reader, with queries to begin with."""

from collections.abc import Callable, Mapping
from typing import Final

from dashboards.app.components import Component, html
from store import Store
from store.described import Relation, meaning, relations
from store.sql_page import example

_KINDS: Final = {"view": "Views", "macro": "Macros", "table": "Tables"}
_GRIDS: Final = "Of your grids"

EXAMPLES: Final = {
    "Averages of every cell": "select grid, label, name, n, mean, low, high from v_cell_stats order by name, mean",
    "Losses in training": (
        "select label, step, avg(value) as loss from curve('loss') group by all order by label, step"
    ),
    "How far every cell is": "select grid, label, planned, ok, failed, running from v_progress order by all",
    "Failures by reason": "select reason, n, message from v_failure order by n desc",
    "What it cost": "select grid, label, sum(train_s) as train_s from v_cost group by all order by train_s desc",
}
"""Queries that any campaign answers, by what they say."""

Link = Callable[[str], str]
"""The address of the page with a query."""


def schema(store: Store, saved: Mapping[str, str], link: Link, link_saved: Link) -> list[Component]:
    """Saved queries by name, then every relation with its meaning, its columns and a query that uses it."""
    types = columns(store)
    examples = [html.Li(html.A(words, href=link(query), title=query)) for words, query in EXAMPLES.items()]
    names = [html.Li(html.A(name, href=link_saved(name), title=query)) for name, query in saved.items()]
    how = html.P(["None yet: ", html.Code("ablate sql --save NAME QUERY"), " keeps one."], className="note")
    parts: list[Component] = [html.H3("Examples"), html.Ul(examples)]
    parts += [html.H3("Saved queries"), html.Ul(names) if names else how]
    known = {each.name for each in relations()}
    for kind, title in _KINDS.items():
        members = sorted((each for each in relations() if each.kind == kind), key=lambda each: each.name)
        parts += [html.H3(title), *(_relation(each, types.get(each.name, {}), link) for each in members)]
    own = {name: of for name, of in types.items() if name not in known}
    if own:
        parts += [html.H3(_GRIDS), *(_own(name, of, link) for name, of in own.items())]
    return [html.Div(parts, className="schema", tabIndex="0", role="region", **{"aria-label": "Schema"})]


def columns(store: Store) -> dict[str, dict[str, str]]:
    """The columns of every table and view, name and type, those of macros left out."""
    rows = store.sql(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'store' "
        "AND NOT internal ORDER BY table_name, column_index"
    )
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in rows.iter_rows():
        found.setdefault(table, {})[column] = kind
    return found


def _relation(each: Relation, types: Mapping[str, str], link: Link) -> Component:
    called = f"{each.name}({each.arguments})" if each.kind == "macro" else each.name
    said = {name: meaning(each, name) or "" for name in types or each.columns}
    rows = [_row(name, types.get(name, ""), words) for name, words in said.items()]
    query = example(each)
    return html.Details(
        [
            html.Summary(html.Code(called)),
            html.P(each.meaning, className="note"),
            html.P([html.A("Example", href=link(query), title=query)]),
            html.Table(html.Tbody(rows)) if rows else None,
        ]
    )


def _own(name: str, types: Mapping[str, str], link: Link) -> Component:
    quoted = '"' + name.replace('"', '""') + '"'
    rows = [_row(column, kind, "") for column, kind in types.items()]
    look = html.P([html.A("First rows", href=link(f"from {quoted} limit 20"))])
    return html.Details([html.Summary(html.Code(name)), look, html.Table(html.Tbody(rows))])


def _row(name: str, kind: str, words: str) -> Component:
    return html.Tr([html.Th(html.Code(name), scope="row"), html.Td([html.Span(kind, className="kind"), " ", words])])
