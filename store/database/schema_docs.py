"""Documentation of tables, views and columns: the comments of the DDL, which every database keeps."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, final

import duckdb

from store.database import quoting

_TABLE: Final = re.compile(r"((?:^--[^\n]*\n)*)^CREATE TABLE (\w+) \(\n(.*?)^\);", re.MULTILINE | re.DOTALL)
_VIEW: Final = re.compile(r"((?:^--[^\n]*\n)+)^CREATE OR REPLACE (?:VIEW (\w+)|MACRO (\w+)\(([^)]*)\))", re.MULTILINE)
_COLUMN: Final = re.compile(r'^    "?(\w+)"? [^\n]*?(?:-- ([^\n]*))?$', re.MULTILINE)
_EVERYWHERE: Final = re.compile(r"^-- Columns that mean the same everywhere:\n((?:--   [^\n]*\n)+)", re.MULTILINE)
_OF_VIEW: Final = re.compile(r"^--   (\w+): ([^\n]*)$", re.MULTILINE)


@final
@dataclass(frozen=True)
class Relation:
    """A table, view or macro: what a row of it is, and what columns of its own say."""

    name: str
    kind: str
    """table, view or macro."""
    meaning: str
    columns: Mapping[str, str]
    arguments: str = ""


@cache
def relations() -> tuple[Relation, ...]:
    """All tables, views and macros in the order of the DDL."""
    schema, views, macros = (
        files("store.database").joinpath(f"{name}.sql").read_text() for name in ("schema", "views", "macros")
    )
    found = [
        Relation(name, "table", _words(head), {column: said for column, said in _COLUMN.findall(body) if said})
        for head, name, body in _TABLE.findall(schema)
    ]
    for head, view, macro, arguments in _VIEW.findall(views + macros):
        own = dict(_OF_VIEW.findall(head))
        about = _words(_OF_VIEW.sub("", head))
        found.append(Relation(view or macro, "view" if view else "macro", about, own, arguments))
    return tuple(found)


@cache
def everywhere() -> Mapping[str, str]:
    """Meanings of columns that mean the same wherever they stand."""
    block = _EVERYWHERE.search(files("store.database").joinpath("schema.sql").read_text())
    return dict(_OF_VIEW.findall(block[1])) if block else {}


def meaning(relation: Relation, column: str) -> str | None:
    """Return the comment of a column: of its relation, else the general one, else the one that all tables share."""
    own = relation.columns.get(column) or everywhere().get(column)
    said = {each.columns[column] for each in relations() if each.kind == "table" and column in each.columns}
    return own or (said.pop() if relation.kind != "table" and len(said) == 1 else None)


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
