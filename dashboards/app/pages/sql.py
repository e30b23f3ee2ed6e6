"""Page SQL: a query to the store, its result as a table and as a chart, and the schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal
from urllib.parse import quote

import polars as pl

from dashboards.app.address import Address, write_query
from dashboards.app.page import AppPage, Component, Key, PageView, Slot, SlotContent, html
from dashboards.app.parts import Control, options
from dashboards.app.query_runner import LIMITS, LIVE_S, QueryAnswer, QueryRunner
from dashboards.data import result_table
from dashboards.data.formatting import count, duration
from dashboards.data.grid_context import grid_context
from dashboards.data.user_errors import Unknown, catch_user_error
from dashboards.figures.chart import (
    MOST_GROUPS,
    MOST_POINTS,
    ChartColumns,
    Kind,
    draw_chart,
    group_styles,
    numeric,
    select_rows,
)
from dashboards.theme.styles import REST, Style
from store import Store
from store.database.query_log import logged_queries
from store.database.schema_docs import Relation, meaning, relations
from store.database.sql_page import example
from store.files.saved_texts import QUERIES

SHOWN_ROWS: Final = 1_000
FILE_ROWS: Final = 200_000
LONGEST_QUERY: Final = 2_500
"""Characters; encoded, it has to fit into an address."""
_LONGEST_ADDRESS: Final = 4_000

_EMPTY: Final = (
    "Write one SELECT statement above and press Ctrl+Enter, or take an example from the schema. Nothing can be "
    f"changed, and nothing but this store can be read; {LIMITS}."
)
_KINDS: Final = {"": "none", "points": "points", "lines": "lines", "bars": "bars", "heat": "heat map"}
_LOG: Final = {"": "linear", "x": "log x", "y": "log y", "xy": "log x and y"}

QUESTIONS: Final = QueryRunner()


class SqlAddress(Address):
    """The query, or the name of a saved one, and the columns of its chart."""

    query: str | None = None
    saved: str | None = None
    chart: Literal["", "points", "lines", "bars", "heat"] = ""
    x: str | None = None
    y: str | None = None
    colour: str | None = None
    log: Literal["", "x", "y", "xy"] = ""


def query_of(view: PageView) -> str:
    """The text of the query; empty where there is none.

    Raises Unknown if it is too long for an address; NotFoundError and SpecError for a saved query that is not there.
    """
    if view.address.query is None and view.address.saved is not None:
        return QUERIES.text(view.store.layout, view.address.saved).strip()
    text: str = (view.address.query or "").strip()
    if len(text) > LONGEST_QUERY or len(write_query(view.address)) > _LONGEST_ADDRESS:
        raise Unknown(
            f"a query in an address has at most {LONGEST_QUERY:,} characters, and fewer with many signs in it; this "
            f"one has {len(text):,}: keep it with `ablate sql --save NAME -f FILE` and open it from the schema"
        )
    return text


def answer_of(view: PageView) -> QueryAnswer | None:
    """The result of the query; None where there is no query. Raises as `query_of` and `Questions.answer`."""
    text = query_of(view)
    return QUESTIONS.answer(view.store, text, MOST_POINTS + 1, again=view.again) if text else None


def _result(view: PageView) -> SlotContent:
    if view.whole:
        return SlotContent(data=_whole(view))
    answer = answer_of(view)
    if answer is None:
        return SlotContent(message=_EMPTY)
    frame = answer.frame.head(SHOWN_ROWS)
    shown = result_table.as_browser_table(frame)
    message = "The query has no rows." if frame.is_empty() else ""
    return SlotContent(
        message=message, caption=_describe_answer(answer), data=shown, columns=result_table.definitions(shown)
    )


def _describe_answer(answer: QueryAnswer) -> str:
    height = answer.frame.height
    words = [f"{count(height, 'row')}, {count(answer.frame.width, 'column')}"]
    if height > SHOWN_ROWS:
        many = f"more than {MOST_POINTS:,}" if height > MOST_POINTS else f"{height:,}"
        files = f"files have all, up to {FILE_ROWS:,}"
        words = [f"the first {SHOWN_ROWS:,} of {many} rows; {files}"]
    live = "new results refresh it" if answer.took_s <= LIVE_S else "Run, not new results, asks it again"
    words.append(f"asked at {answer.at:%H:%M:%S}, took {duration(answer.took_s)}: {live}")
    text = "; ".join(words)
    return f"{text[:1].upper()}{text[1:]}."


def _whole(view: PageView) -> pl.DataFrame:
    """All rows, for a file. Raises Unknown where they are too many."""
    text = query_of(view)
    if not text:
        raise Unknown("there is no query yet, so no result to write")
    frame = QUESTIONS.answer(view.store, text, FILE_ROWS + 1).frame
    if frame.height > FILE_ROWS:
        raise Unknown(
            f"the result has more than {FILE_ROWS:,} rows, the most of a download; add LIMIT, or write it with "
            "`ablate sql --parquet FILE`"
        )
    return frame


def _chart(view: PageView) -> SlotContent:
    chosen = view.address
    answer, problem = catch_user_error(lambda: answer_of(view))
    if problem is not None or answer is None:
        return SlotContent(message="There is no result to draw." if problem else "Any result can be drawn here.")
    if not chosen.chart:
        return SlotContent(message="Choose points, lines, bars or a heat map as chart, and which columns are drawn.")
    if answer.frame.is_empty():
        return SlotContent(message="The query has no rows to draw.")
    kind: Kind = chosen.chart
    columns = columns_of(view, answer.frame)
    drawn = select_rows(answer.frame, kind, columns)
    if drawn.is_empty():
        return SlotContent(message=f"No row has finite numbers to draw in {columns.x!r} and {columns.y!r}.", data=drawn)
    styles = {} if kind == "heat" else group_styles(drawn, _known_styles(view, drawn["group"].drop_nulls().unique()))
    figure = draw_chart(drawn, kind, columns, styles, log=chosen.log)
    named = [name for name, style in styles.items() if style is not REST]
    legend = [Key(styles[name], name, name) for name in named]
    return SlotContent(
        figure, _drawn_words(answer.frame, drawn, kind, columns, len(styles) - len(named)), drawn, legend
    )


def _known_styles(view: PageView, groups: pl.Series) -> Mapping[str, Style]:
    """The looks that other pages have for `groups`: as operators, or as cells of a grid that draws them all."""
    if set(groups) <= view.operators.keys():
        return view.operators
    with logged_queries():  # this query is not the SQL of the chart
        found = view.store.sql(_GRIDS, {"labels": groups.to_list(), "n": len(groups)})["grid"]
        about = None if found.is_empty() else grid_context(view.store, found[0], view.operators)
    if about is None:
        return {}
    styles = {cell.label: about.look.styles[cell.cell] for cell in about.cells}
    return {} if any(styles[group] == REST for group in groups) else styles


_GRIDS: Final = """
    SELECT grid FROM grid_trial WHERE label IN (SELECT unnest(CAST($labels AS VARCHAR[])))
    GROUP BY grid HAVING count(DISTINCT label) = $n ORDER BY grid LIMIT 1
"""


def columns_of(view: PageView, frame: pl.DataFrame) -> ChartColumns:
    """Choose the columns of the chart; by default the first, and the first other one with numbers."""
    chosen, names = view.address, frame.columns
    numbers = numeric(frame)
    x = chosen.x or names[0]
    if chosen.chart == "heat":
        y = chosen.y or next((name for name in names if name != x), x)
        return ChartColumns(x, y, chosen.colour or next((name for name in numbers if name not in (x, y)), None))
    y = chosen.y or next((name for name in numbers if name != x), next(iter(numbers), names[-1]))
    return ChartColumns(x, y, chosen.colour)


def _drawn_words(frame: pl.DataFrame, drawn: pl.DataFrame, kind: Kind, columns: ChartColumns, rest: int) -> str:
    rows = min(frame.height, MOST_POINTS)
    what = {"points": "Point", "lines": "Points of a line", "bars": "Bar", "heat": "Square"}[kind]
    words = [f"{what}: a row of the result, {count(drawn.height, 'row')} of {rows:,}"]
    if frame.height > MOST_POINTS:
        words.append(f"the first {MOST_POINTS:,} rows alone are drawn: take averages or buckets to draw all")
    if drawn.height < rows:
        words.append("rows without a finite number are left out")
    keys = ["x", "y"] if kind == "heat" else ["x", "group"]
    if kind in ("bars", "heat") and drawn.select(keys).is_duplicated().any():
        words.append("several rows share a place and cover each other: group by it and average")
    if rest:
        words.append(f"{count(rest, 'group')} beyond the first {MOST_GROUPS} of {columns.colour} in grey")
    return f"{'; '.join(words)}."


def _schema(view: PageView) -> SlotContent:
    saved = QUERIES.every(view.store.layout)
    here = f"/{quote(view.campaign)}/sql"
    parts = schema(
        view.store,
        saved,
        lambda query: here + write_query(SqlAddress(query=query)),
        lambda name: here + write_query(SqlAddress(saved=name)),
    )
    return SlotContent(parts=parts)


def _controls(view: PageView) -> Sequence[Control]:
    text, _ = catch_user_error(lambda: query_of(view))
    hint = "One statement that reads; Ctrl+Enter runs it"
    query = Control("query", "Query", "code", hint=hint, usual=text or None, resets=("saved",))
    answer, _ = catch_user_error(lambda: answer_of(view))
    if answer is None:
        return (query,)
    names = [*answer.frame.columns]
    names += [name for name in (view.address.x, view.address.y, view.address.colour) if name and name not in names]
    return (
        query,
        Control("chart", "Chart", "choice", _KINDS, usual=""),
        Control("x", "x", "choice", options(names), "By default the first column"),
        Control("y", "y", "choice", options(names), "By default the first other column with numbers"),
        Control("colour", "Colour", "choice", options(names), "What groups rows; the value of a heat map"),
        Control("log", "Axes", "choice", _LOG, usual=""),
    )


SQL = AppPage(
    name="sql",
    title="SQL",
    letter="s",
    about="Any other question: one read-only SQL statement over the tables and views that are listed here.",
    address=SqlAddress,
    controls=_controls,
    slots=(
        Slot("result", "Result", _result, "table"),
        Slot("chart", "Chart", _chart),
        Slot("schema", "Schema", _schema, "words"),
    ),
    of="campaign",
)


_RELATION_KINDS: Final = {"view": "Views", "macro": "Macros", "table": "Tables"}
_GRID_VIEWS: Final = "Of your grids"

EXAMPLES: Final = {
    "Averages of every cell": "select grid, label, name, n, mean, low, high from v_cell_stats order by name, mean",
    "Losses in training": (
        "select label, step, avg(value) as loss from curve('loss') group by all order by label, step"
    ),
    "How far every cell is": "select grid, label, planned, ok, failed, running from v_progress order by all",
    "Failures by reason": "select reason, n, message from v_failure order by n desc",
    "What it cost": "select grid, label, sum(train_s) as train_s from v_cost group by all order by train_s desc",
}
"""Example queries that work on any campaign, by title."""

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
    for kind, title in _RELATION_KINDS.items():
        members = sorted((each for each in relations() if each.kind == kind), key=lambda each: each.name)
        parts += [html.H3(title), *(_relation(each, types.get(each.name, {}), link) for each in members)]
    own = {name: of for name, of in types.items() if name not in known}
    if own:
        parts += [html.H3(_GRID_VIEWS), *(_own(name, of, link) for name, of in own.items())]
    return [html.Div(parts, className="schema", tabIndex="0", role="region", **{"aria-label": "Schema"})]


def columns(store: Store) -> dict[str, dict[str, str]]:
    """List name and type of the columns of every table and view; macros are left out."""
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
