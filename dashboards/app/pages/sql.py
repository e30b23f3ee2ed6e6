"""Page SQL: a query to the store, its result as a table and as a chart, and the schema."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from urllib.parse import quote

import polars as pl

from ablate.dashboards.app.address import LONGEST, Address, write_query
from ablate.dashboards.app.navigation import saved_queries
from ablate.dashboards.app.page import AppPage, Component, Control, Key, PageView, Slot, SlotContent, html, options
from ablate.dashboards.app.query_runner import LIMITS, LIVE_S, QueryAnswer, QueryRunner
from ablate.dashboards.data import result_table
from ablate.dashboards.data.formatting import count, duration
from ablate.dashboards.data.user_errors import Unknown, catch_user_error
from ablate.dashboards.figures import chart
from ablate.dashboards.theme.styles import REST, Style
from ablate.store import Store
from ablate.store.database.schema_docs import example, meaning, relations
from ablate.store.files.saved_texts import QUERIES

SHOWN_ROWS: Final = 1_000
FILE_ROWS: Final = 200_000
LONGEST_QUERY: Final = 2_500  # characters; encoded, it has to fit into an address

_HELP: Final = (
    "Write one SELECT statement and press Ctrl+Enter, or take an example from the schema. Tab completes a name. "
    f"Nothing can be changed, and nothing but this store can be read; {LIMITS}."
)
_KINDS: Final = {"": "none", "points": "points", "lines": "lines", "bars": "bars", "heat": "heat map"}
_LOG: Final = {"": "linear", "x": "log x", "y": "log y", "xy": "log x and y"}

QUESTIONS: Final = QueryRunner()


class SqlAddress(Address):
    """The query, or the name of a saved one, and the columns of its chart."""

    query: str | None = None
    saved: str | None = None
    chart: Literal["", "points", "lines", "bars", "heat"] | None = None
    """None: points for the first example, else no chart."""
    x: str | None = None
    y: str | None = None
    colour: str | None = None
    log: Literal["", "x", "y", "xy"] = ""


def query_of(view: PageView) -> str:
    """Return the query, by default the first example. Raises Unknown if it is too long; else as `Shelf.text`."""
    if view.address.query is None and view.address.saved is not None:
        return QUERIES.text(view.store.layout, view.address.saved).strip()
    text: str = (view.address.query or next(iter(EXAMPLES.values()))).strip()
    if len(text) > LONGEST_QUERY or len(write_query(view.address)) > LONGEST:
        raise Unknown(
            f"the query has {len(text):,} characters, and an address at most {LONGEST_QUERY:,}, and fewer with many "
            "signs in it; keep it with `ablate sql --save NAME -f FILE` and open it from the schema"
        )
    return text


def answer_of(view: PageView) -> QueryAnswer:
    """Return the result of the query. Raises as `query_of` and `QueryRunner.answer`."""
    return QUESTIONS.answer(view.store, query_of(view), chart.MOST_POINTS + 1, is_refresh=view.is_refresh)


def _result(view: PageView) -> SlotContent:
    if view.whole:  # for a file
        frame = QUESTIONS.answer(view.store, query_of(view), FILE_ROWS + 1).frame
        if frame.height > FILE_ROWS:
            raise Unknown(f"the result has more than {FILE_ROWS:,} rows; add LIMIT, or use `ablate sql --parquet FILE`")
        return SlotContent(data=frame)
    answer = answer_of(view)
    height = answer.frame.height
    size = f"{count(height, 'row')}, {count(answer.frame.width, 'column')}"
    if height > SHOWN_ROWS:
        many = f"more than {chart.MOST_POINTS:,}" if height > chart.MOST_POINTS else f"{height:,}"
        size = f"The first {SHOWN_ROWS:,} of {many} rows; files have all, up to {FILE_ROWS:,}"
    live = "new results refresh it" if answer.took_s <= LIVE_S else "Run, not new results, asks it again"
    caption = f"{size}; asked at {answer.at:%H:%M:%S}, took {duration(answer.took_s)}: {live}."
    shown = result_table.as_browser_table(answer.frame.head(SHOWN_ROWS))
    message = "The query has no rows." if shown.is_empty() else ""
    listed = result_table.definitions(shown)
    return SlotContent(caption=caption, data=shown, message=message, columns=listed, hint=_HELP)


def _kind(view: PageView) -> chart.Kind | Literal[""]:
    if view.address.chart is not None:
        return view.address.chart  # type: ignore[no-any-return]
    return "points" if view.address.query is None and view.address.saved is None else ""


def _chart(view: PageView) -> SlotContent:
    kind = _kind(view)
    answer, problem = catch_user_error(lambda: answer_of(view))
    if problem is not None or answer is None:
        return SlotContent(message="There is no result to draw.")
    if not kind:
        return SlotContent(message="Choose points, lines, bars or a heat map as chart, and which columns are drawn.")
    if answer.frame.is_empty():
        return SlotContent(message="The query has no rows to draw.")
    chosen = _columns_of(view, answer.frame)
    drawn = chart.select_rows(answer.frame, kind, chosen)
    if drawn.is_empty():
        return SlotContent(message=f"No row has finite numbers to draw in {chosen.x!r} and {chosen.y!r}.", data=drawn)
    styles: Mapping[str, Style] = {} if kind == "heat" else chart.group_styles(drawn, view.styles)
    figure = chart.draw_chart(drawn, kind, chosen, styles, log=view.address.log)
    legend = [Key(style, name, name) for name, style in styles.items() if style is not REST]
    caption = _drawn_words(answer.frame, drawn, kind, chosen, len(styles) - len(legend))
    return SlotContent(figure, caption, drawn, legend)


def _columns_of(view: PageView, frame: pl.DataFrame) -> chart.ChartColumns:
    """Choose the columns of the chart; by default the first, and the first other one with numbers."""
    chosen, names, numbers = view.address, frame.columns, chart.numeric(frame)
    x = chosen.x or names[0]
    if _kind(view) == "heat":
        y = chosen.y or next((name for name in names if name != x), x)
        return chart.ChartColumns(x, y, chosen.colour or next((name for name in numbers if name not in (x, y)), None))
    y = chosen.y or next((name for name in numbers if name != x), next(iter(numbers), names[-1]))
    return chart.ChartColumns(x, y, chosen.colour)


def _drawn_words(
    frame: pl.DataFrame, drawn: pl.DataFrame, kind: chart.Kind, columns: chart.ChartColumns, rest: int
) -> str:
    rows = min(frame.height, chart.MOST_POINTS)
    words = f"{count(drawn.height, 'row')} of {rows:,} drawn; rows without a finite number are left out."
    if frame.height > chart.MOST_POINTS:
        words += f" The first {chart.MOST_POINTS:,} rows alone are drawn: take averages or buckets to draw all."
    keys = ["x", "y"] if kind == "heat" else ["x", "group"]
    if kind in ("bars", "heat") and drawn.select(keys).is_duplicated().any():
        words += " Several rows share a place and cover each other: group by it and average."
    if rest:
        words += f" Grey: {count(rest, 'group')} beyond the first {chart.MOST_GROUPS} of {columns.colour}."
    return words


def _schema(view: PageView) -> SlotContent:
    """List examples, saved queries, and every relation with its meaning, its columns and a query that uses it."""
    here = f"/{quote(view.campaign)}/sql"

    def item(words: str, query: str, address: SqlAddress) -> Component:
        return html.Li(html.A(words, href=here + write_query(address), title=query))

    examples = [item(words, query, SqlAddress(query=query)) for words, query in EXAMPLES.items()]
    parts: list[Component] = [html.H3("Examples"), html.Ul(examples)]
    saved = saved_queries(view.campaign, QUERIES.every(view.store.layout))
    parts += [html.H3("Saved queries"), html.Div(saved, id="saved-queries")]
    types = _list_columns(view.store)
    own = types.keys() - {each.name for each in relations()}
    for kind, title in _RELATION_KINDS.items():
        parts.append(html.H3(title))
        for each in sorted((each for each in relations() if each.kind == kind), key=lambda each: each.name):
            called = f"{each.name}({each.arguments})" if each.kind == "macro" else each.name
            kinds = types.get(each.name, {})
            rows = [(name, kinds.get(name, ""), meaning(each, name) or "") for name in kinds or each.columns]
            parts.append(_relation(called, each.meaning, here + write_query(SqlAddress(query=example(each))), rows))
    if own:
        parts.append(html.H3("Of your grids"))
    for name in filter(own.__contains__, types):
        quoted = '"' + name.replace('"', '""') + '"'
        query = here + write_query(SqlAddress(query=f"from {quoted} limit 20"))
        parts.append(_relation(name, "", query, [(column, kind, "") for column, kind in types[name].items()]))
    label = {"aria-label": "Schema"}
    return SlotContent(parts=[html.Div(parts, className="schema", tabIndex="0", role="region", **label)])


def _relation(called: str, words: str, query: str, rows: Sequence[tuple[str, str, str]]) -> Component:
    parts = [html.Summary(html.Code(called)), html.P(words, className="note"), html.P(html.A("Example", href=query))]
    lines = [f"{name} {kind}{': ' if said else ''}{said}" for name, kind, said in rows]
    return html.Details([*parts, html.P("\n".join(lines), className="columns")])  # a table takes the browser a second


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
        Control("chart", "Chart", "choice", _KINDS, usual=_kind(view)),
        Control("x", "x", "choice", options(names), "By default the first column"),
        Control("y", "y", "choice", options(names), "By default the first other column with numbers"),
        Control("colour", "Colour", "choice", options(names), "What groups rows; the value of a heat map"),
        Control("log", "Axes", "choice", _LOG, usual=""),
    )


SQL = AppPage(
    name="sql",
    title="SQL",
    letter="s",
    question="Any other question: one read-only SQL statement over the tables and views that are listed here.",
    address=SqlAddress,
    controls=_controls,
    slots=(
        Slot("result", "Result", _result, "table"),
        Slot("chart", "Chart", _chart),
        Slot("schema", "Schema", _schema, "words"),
    ),
    of="campaign",
    checks=False,  # they run the query
)


_RELATION_KINDS: Final = {"view": "Views", "macro": "Macros", "table": "Tables"}

EXAMPLES: Final = {
    "What every grid measures": (
        "select label, mean, low, high, n, grid\nfrom v_cell_stats join grid using (grid)\n"
        "where name = measure->>'name' and json_contains(point::JSON, coalesce(measure->'point', '{}'))\n"
        "and json_contains(coalesce(measure->'point', '{}'), point::JSON)\n"
        "order by grid, mean"
    ),
    "Averages of every cell": "select grid, label, name, n, mean, low, high from v_cell_stats order by name, mean",
    "Losses in training": (
        "select label, step, avg(value) as loss from curve('loss') group by all order by label, step"
    ),
    "How far every cell is": "select grid, label, planned, done, failed, running from v_progress order by all",
    "Failures by reason": "select reason, n, message from v_failure order by n desc",
    "What it cost": "select grid, label, sum(train_s) as train_s from v_cost group by all order by train_s desc",
}
"""Example queries that work on any campaign, by title."""


def _list_columns(store: Store) -> dict[str, dict[str, str]]:
    rows = store.sql(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'store' "
        "AND NOT internal ORDER BY table_name, column_index"
    )
    types: dict[str, dict[str, str]] = {}
    for table, column, kind in rows.iter_rows():
        types.setdefault(table, {})[column] = kind
    return types
