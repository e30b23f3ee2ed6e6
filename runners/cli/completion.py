"""What could follow at the cursor: tables, columns, macros, keywords and saved queries."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from store.store import Store

KEYWORDS: Final = (
    "ALL", "AND", "AS", "ASC", "ASOF", "AVG", "BETWEEN", "BY", "CASE", "CAST", "COUNT", "DESC", "DESCRIBE", "DISTINCT",
    "ELSE", "END", "EXCLUDE", "EXISTS", "EXPLAIN", "FILTER", "FROM", "GROUP", "HAVING", "ILIKE", "IN", "IS", "JOIN",
    "LEFT", "LIKE", "LIMIT", "MAX", "MEDIAN", "MIN", "NOT", "NULL", "OFFSET", "ON", "OR", "ORDER", "OVER", "PARTITION",
    "QUALIFY", "SELECT", "STDDEV", "SUM", "SUMMARIZE", "THEN", "UNION", "USING", "WHEN", "WHERE", "WITH",
)  # fmt: skip
COMMANDS: Final = (".csv", ".help", ".quit", ".run", ".save", ".schema", ".tables")
_NAMING: Final = ("from", "join", "describe", "summarize", "table")
_PLACE: Final = re.compile(r"(?:([\w]+)\.)?(\w*)$")


class Vocabulary(NamedTuple):
    """The words of one store."""

    tables: dict[str, list[str]]
    """Tables and views, with their columns."""
    macros: list[str]
    saved: list[str]


class Word(NamedTuple):
    """One continuation: `text` replaces the last `typed` characters."""

    text: str
    kind: str
    typed: int


def vocabulary(store: "Store") -> Vocabulary:
    """The tables, columns, macros and saved queries of `store`."""
    from store.files.saved_texts import QUERIES

    columns = store.sql(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'store' AND NOT internal "
        "ORDER BY table_name, column_index"
    )
    tables: dict[str, list[str]] = {}
    for table, column in columns.iter_rows():
        tables.setdefault(table, []).append(column)
    macros = store.sql("SELECT DISTINCT function_name AS name FROM duckdb_functions() WHERE NOT internal ORDER BY ALL")
    public = [name for name in macros["name"] if not name.startswith("_")]
    return Vocabulary(tables, public, list(QUERIES.every(store.layout)))


def completions(before: str, words: Vocabulary) -> list[Word]:
    """What could stand at the end of `before`, the text before the cursor."""
    if before.startswith("."):
        return _command(before, words)
    place = _PLACE.search(before)
    owner, typed = (place[1], place[2]) if place else (None, "")
    if owner is not None:
        return _fitting(typed, [(column, "column") for column in _columns_of(owner, before, words)])
    earlier = re.findall(r"[\w(]+", before[: len(before) - len(typed)])
    if earlier and earlier[-1].lower() in _NAMING:
        return _fitting(typed, [(name, "table") for name in words.tables])
    used = _used(before, words) or list(words.tables)
    columns = dict.fromkeys(column for table in used for column in words.tables[table])
    return _fitting(
        typed,
        [
            *((name, "column") for name in columns),
            *((name, "macro") for name in words.macros),
            *((name, "table") for name in words.tables),
            *((name if typed.isupper() else name.lower(), "keyword") for name in KEYWORDS),
        ],
    )


def _command(before: str, words: Vocabulary) -> list[Word]:
    command, blank, typed = before.partition(" ")
    if not blank:
        return _fitting(command, [(name, "command") for name in COMMANDS])
    names = {".schema": [*words.tables, *words.macros], ".run": words.saved, ".save": words.saved}.get(command, [])
    return _fitting(typed.strip(), [(name, "name") for name in names])


def _columns_of(owner: str, before: str, words: Vocabulary) -> Sequence[str]:
    """Of the table `owner`, or the one that `owner` stands for."""
    named = re.search(rf"(\w+)\s+(?:as\s+)?{re.escape(owner)}\b", before, re.IGNORECASE)
    return words.tables.get(owner) or words.tables.get(named[1] if named else "", [])


def _used(before: str, words: Vocabulary) -> list[str]:
    return [name for name in dict.fromkeys(re.findall(r"\w+", before)) if name in words.tables]


def _fitting(typed: str, offered: Iterable[tuple[str, str]]) -> list[Word]:
    return [Word(text, kind, len(typed)) for text, kind in offered if text.lower().startswith(typed.lower())]
