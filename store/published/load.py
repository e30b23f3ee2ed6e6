"""The published cells as rows of a new database."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from store.published.tables import cells, file_hash, notes, operators, version

if TYPE_CHECKING:
    from store.published.tables import Made, Note, PublishedCell


def fill(connection: duckdb.DuckDBPyConnection) -> None:
    """Insert every published cell, note and operator, and which version of them this is, into empty tables."""
    for table, rows in _tables().items():
        connection.register("rows_to_insert", rows)
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_to_insert")
        connection.unregister("rows_to_insert")
    connection.execute(
        "INSERT INTO meta VALUES ('published_version', $version), ('published_hash', $hash)",
        {"version": str(version()), "hash": file_hash()},
    )


@cache
def _tables() -> dict[str, pa.Table]:
    return {
        "published": _columns(cells()),
        "published_note": _columns(notes()),
        "published_operator": _columns(operators()),
    }


def _columns(rows: "Sequence[PublishedCell] | Sequence[Note] | Sequence[Made]") -> pa.Table:
    found = {}
    for name in (each.name for each in fields(rows[0])):
        values = [getattr(row, name) for row in rows]
        if isinstance(values[0], Mapping):
            kind = pa.map_(pa.string(), pa.float64() if name == "point" else pa.string())
            found[name] = pa.array([sorted(each.items()) for each in values], kind)
        else:
            found[name] = pa.array(values)
    return pa.table(found)
