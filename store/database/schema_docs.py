"""Documentation of tables, views and columns: the comments of the DDL, which every database keeps."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

import duckdb

from ablate.store.database import quoting

_TABLE: Final = re.compile(r"((?:^--[^\n]*\n)*)^CREATE TABLE (\w+) \(\n(.*?)^\);", re.MULTILINE | re.DOTALL)
_VIEW: Final = re.compile(r"((?:^--[^\n]*\n)+)^CREATE OR REPLACE (?:VIEW (\w+)|MACRO (\w+)\(([^)]*)\))", re.MULTILINE)
_COLUMN: Final = re.compile(r'^    "?(\w+)"? [^\n]*?(?:-- ([^\n]*))?$', re.MULTILINE)
_EVERYWHERE: Final = re.compile(r"^-- Columns that mean the same everywhere:\n((?:--   [^\n]*\n)+)", re.MULTILINE)
_OF_RECORD: Final = re.compile(r"^    -- columns of (\w+)( or null)?\n", re.MULTILINE)
_OF_VIEW: Final = re.compile(r"^--   (\w+): ([^\n]*)$", re.MULTILINE)

_EXAMPLES: Final = {
    "final": "select grid, label, value from final('mse') where point['sigma_f'] = 5 order by value",
    "paired": "select grid, label, avg(difference) as difference from paired('mse', 'softmax · 8') group by all",
    "curve": "select grid, label, step, median(value) as loss from curve('loss') group by all order by all",
    "last_probe": "select grid, label, layer, head, avg(value) as v from last_probe('number.strength') group by all",
    "axis": "select name, type, labels from axis where grid = 'quickstart' order by position",
    "v_cell_stats": "select grid, label, n, mean, low, high from v_cell_stats where name = 'mse' order by mean",
    "v_cost": "select grid, label, sum(train_s) as train_s, count(train_s) as of_trials from v_cost group by all",
    "v_failure": "select reason, n, message from v_failure order by n desc",
    "v_metric": "select step, avg(value) as loss from v_metric where name = 'loss' group by all order by step",
    "v_pair": "select grid, label, avg(log_ratio) as log_ratio from v_pair where name = 'mse' group by all",
    "v_progress": "select grid, label, planned, done, failed, running from v_progress order by all",
    "published": "select paper, paper_table, printed, unit from published where measurement = 'mse' limit 5",
    "trial": "select state, count(*) as trials from trial group by all",
}


class Relation(NamedTuple):
    """A table, view or macro: what a row of it is, and what columns of its own say."""

    name: str
    kind: str  # table, view or macro
    meaning: str
    columns: Mapping[str, str]
    arguments: str = ""


@cache
def ddl() -> tuple[str, str, str]:
    """The statements that make the tables, the views and the macros of an empty store."""
    from ablate.store.files import records

    schema, views, macros = (
        files("ablate.store.database").joinpath(f"{name}.sql") for name in ("schema", "views", "macros")
    )
    tables = _OF_RECORD.sub(lambda of: getattr(records, of[1]).ddl(optional=bool(of[2])), schema.read_text("utf-8"))
    return tables, views.read_text("utf-8"), macros.read_text("utf-8")


@cache
def relations() -> tuple[Relation, ...]:
    """All tables, views and macros in the order of the DDL."""
    schema, views, macros = ddl()
    relations = [
        Relation(name, "table", _words(head), {column: said for column, said in _COLUMN.findall(body) if said})
        for head, name, body in _TABLE.findall(schema)
    ]
    for head, view, macro, arguments in _VIEW.findall(views + macros):
        own = dict(_OF_VIEW.findall(head))
        comment = _words(_OF_VIEW.sub("", head))
        relations.append(Relation(view or macro, "view" if view else "macro", comment, own, arguments))
    return tuple(relations)


@cache
def everywhere() -> Mapping[str, str]:
    """Meanings of columns that mean the same wherever they stand."""
    block = _EVERYWHERE.search(ddl()[0])
    return dict(_OF_VIEW.findall(block[1])) if block else {}


def meaning(relation: Relation, column: str) -> str | None:
    """Return the comment of a column: of its relation, else the general one, else the one that all tables share."""
    own = relation.columns.get(column) or everywhere().get(column)
    said = {each.columns[column] for each in relations() if each.kind == "table" and column in each.columns}
    return own or (said.pop() if relation.kind != "table" and len(said) == 1 else None)


def example(relation: Relation) -> str:
    """A query that shows a use of `relation`."""
    plain = f'from "{relation.name}" limit 5' if relation.name == "grid" else f"from {relation.name} limit 5"
    return _EXAMPLES.get(relation.name, plain)


def describe(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep all meanings in the database behind `connection` as its comments."""
    columns: dict[str, list[str]] = {}
    listed = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal ORDER BY table_name, column_index"
    for table, column in connection.execute(listed).fetchall():
        columns.setdefault(table, []).append(column)
    statements = []
    for each in relations():
        kind = "MACRO TABLE" if each.kind == "macro" else each.kind
        statements.append(f"COMMENT ON {kind} {each.name} IS {quoting.text(each.meaning)}")
        for column in columns.get(each.name, ()) if each.kind != "macro" else ():
            place = f"{each.name}.{quoting.identifier(column)}"
            statements.append(f"COMMENT ON COLUMN {place} IS {quoting.text(meaning(each, column) or '')}")
    connection.execute(";\n".join(statements))


def _words(head: str) -> str:
    """The text of a block of comments, without rules and headings."""
    lines = [line.removeprefix("--").strip() for line in head.splitlines() if not re.search(r"-{20,}$", line)]
    return " ".join(line for line in lines if line)


def column_types() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Name and type of each column of every table, view and macro."""
    types: dict[str, Sequence[tuple[str, str]]] = {}
    with duckdb.connect() as connection:
        for statements in ddl():
            connection.execute(statements)
        for each in relations():
            arguments = ", ".join("NULL" for argument in each.arguments.split(",") if ":=" not in argument)
            shown = f"{each.name}({arguments})" if each.kind == "macro" else each.name
            described = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM {shown})")
            types[each.name] = described.fetchall()
    return types
