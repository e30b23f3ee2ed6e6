"""A connection through which nobody can write, reach a file or the network, or change a setting.

Values of a result that a frame or Python cannot hold are refused; they would be wrong or crash.
"""

import re
import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

import duckdb
import polars as pl

from ablate.grid.errors import SpecError
from ablate.store.database import quoting
from ablate.store.database.connection import OFFLINE, check_version, engine_errors

_READING: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_EXPLAIN: Final = re.compile(r"\s*explain\s+(analyze\s+)?(select|from|with|values|describe|pivot)\b", re.IGNORECASE)
"""EXPLAIN ANALYZE runs the statement, so it has to be one that reads."""
_LIMITS: Final = ("memory_limit", "max_temp_directory_size")
_NOT_IN_FRAMES: Final = re.compile(
    r"\b(INTERVAL|UNION|BIT|BIGNUM|TIME WITH TIME ZONE|VARIANT|GEOMETRY|TIMESTAMP_S)\b|\b(DATE|TIMESTAMP\w*)\b.*[\])]"
)
"""Types that frames cannot hold; also dates in lists, structs and maps."""
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")  # names of fields and values of an ENUM
_INFINITY: Final = 2**63 - 1  # how the engine writes an infinite time; in nanoseconds it would be one of the year 2262


def locked_connection(
    snapshot: Path, *, memory_bytes: int | None = None, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A locked, read-only connection to this very file.

    The file is attached to a database in memory. For a second `connect` to the same path the engine would return the
    file that it opened first, even if another was renamed over it. Data that do not fit into memory are spilled to a
    directory, the only one that it may access, which the engine makes and removes. `memory_bytes` limits both.
    """
    spill = Path(tempfile.gettempdir()) / f"ablate-sql-{uuid4().hex}"
    limits: dict[str, str | int] = {} if memory_bytes is None else dict.fromkeys(_LIMITS, f"{memory_bytes}B")
    if threads is not None:
        limits["threads"] = threads
    with engine_errors(snapshot):
        connection = duckdb.connect(":memory:", config={**OFFLINE, **limits, "temp_directory": str(spill)})
        connection.execute(f"ATTACH {quoting.text(str(snapshot))} AS store (READ_ONLY)")
        connection.execute("USE store")
        check_version(connection, snapshot)
        # a progress bar would be printed into the result. If it is off already, as in a notebook without widgets, the
        # engine may refuse the setting.
        if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
            connection.execute("SET enable_progress_bar = false")
        # names of the caller's variables are no tables; the next line forbids this, too
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    return connection


def check_reads(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise SpecError unless the query is one statement that reads."""
    statements = connection.extract_statements(query)
    if not statements:
        raise SpecError("there is no SQL statement in the query; write SELECT ...")
    if len(statements) != 1:
        raise SpecError(f"the query has {len(statements)} SQL statements; write one at a time")
    kind, name = _kind(statements[0])
    if kind == duckdb.StatementType.MULTI:
        raise SpecError(
            "the SQL statement is several inside (a PIVOT first asks which values there are); list them, as in PIVOT "
            "... ON column IN ('a', 'b')"
        )
    if kind not in _READING:
        raise SpecError(f"{name} is refused: the store is read-only; write SELECT ...")
    if kind == duckdb.StatementType.EXPLAIN and not _EXPLAIN.match(query):
        raise SpecError(
            "EXPLAIN of this is refused: the store is read-only; write EXPLAIN SELECT ..., without brackets and "
            "comments before SELECT"
        )


def _kind(statement: duckdb.Statement) -> tuple[duckdb.StatementType | None, str]:
    """The kind of a statement and its name; the Python module does not know some, such as UPDATE EXTENSIONS."""
    try:
        return statement.type, f"a {statement.type.name} statement"
    except ValueError:
        return None, "another statement"


def check_types(relation: duckdb.DuckDBPyRelation) -> None:
    """Raise SpecError for a column whose type a frame cannot hold; says how to cast it."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if _NOT_IN_FRAMES.search(_QUOTED.sub("", str(kind))):
            raise SpecError(
                f"SQL: the column {name!r} is of the type {kind}, which a frame cannot hold; "
                "cast it, such as CAST(... AS VARCHAR), or epoch(...) for the seconds of an interval"
            )


def check_dates(frame: pl.DataFrame) -> None:
    """Raise SpecError for a column with a date that Python does not have, such as infinity."""
    for column in frame:
        if not column.dtype.is_temporal() or column.dtype in (pl.Time, pl.Duration):
            continue
        years, infinite = column.dt.year(), column.to_physical().cast(pl.Int64).abs() == _INFINITY
        if infinite.any() or years.null_count() > column.null_count() or not years.is_between(1, 9999).all():
            raise SpecError(
                f"SQL: the column {column.name!r} has a date outside the years 1 to 9999; "
                "cast it, such as CAST(... AS VARCHAR), or see whether its seconds are milliseconds"
            )
