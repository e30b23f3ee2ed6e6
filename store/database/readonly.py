"""A connection through which nobody can write, reach a file or the network, or change a setting."""

import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

import duckdb

from grid.errors import SpecError
from store.database import quoting
from store.database.connection import OFFLINE, check_version, engine_errors

_READING: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_EXPLAINING: Final = ("explain", "analyze", "verbose")
_LIMITS: Final = ("memory_limit", "max_temp_directory_size")


def locked_connection(
    snapshot: Path, *, memory_bytes: int | None = None, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A locked, read-only connection to this very file.

    The file is attached to a database in memory. For a second `connect` to the same path the engine would return the
    file that it opened first, even if another was renamed over it. Data that do not fit into memory are spilled to a
    directory of this connection, the only one that it may access. The engine creates this directory on demand and
    removes it with the connection. The limits are 80 % of memory and 90 % of the free disk, or `memory_bytes` of each.
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
        # A progress bar would be printed into the result. If it is off already, as in a notebook without widgets, the
        # engine may refuse the setting.
        if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
            connection.execute("SET enable_progress_bar = false")
        # variables of the caller are no tables; a second lock, since the next line closes them, too
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    return connection


def check_reads(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Refuse all but one statement that reads.

    Raises SpecError: there is none, there are several, or it would change something.
    """
    statements = connection.extract_statements(query)
    if not statements:
        raise SpecError("there is no SQL statement in the query; write SELECT ...")
    if len(statements) != 1:
        raise SpecError(f"one SQL statement at a time; got {len(statements)}")
    kind, name = _kind(statements[0])
    if kind == duckdb.StatementType.MULTI:
        raise SpecError(
            "one SQL statement at a time; this one is several inside (a PIVOT first asks which values there are): "
            "list them, as in PIVOT ... ON column IN ('a', 'b')"
        )
    if kind not in _READING:
        raise SpecError(f"the store is read-only: write SELECT ...; got {name}")
    if kind == duckdb.StatementType.EXPLAIN:  # EXPLAIN ANALYZE runs the statement
        inner = [_kind(each) for each in connection.extract_statements(strip_explain(statements[0].query))]
        if [each for each, _ in inner] != [duckdb.StatementType.SELECT]:
            found = f"; got one of {inner[0][1]}" if inner else ", without brackets around it"
            raise SpecError(f"the store is read-only: write EXPLAIN SELECT ...{found}")


def _kind(statement: duckdb.Statement) -> tuple[duckdb.StatementType | None, str]:
    """The kind of a statement and its name; the Python module does not know some, such as UPDATE EXTENSIONS."""
    try:
        return statement.type, f"a {statement.type.name} statement"
    except ValueError:
        return None, "another statement"


def strip_explain(query: str) -> str:
    """Return the statement after EXPLAIN, ANALYZE and options in brackets, split by the engine's tokenizer."""
    text = query.encode()
    tokens = duckdb.tokenize(query)
    ends = [*(start for start, _ in tokens[1:]), len(text)]
    words = [
        (start, text[start:end].decode().strip().lower())
        for (start, kind), end in zip(tokens, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
    depth = 0
    for start, word in words:
        if depth == 0 and word != "(" and word not in _EXPLAINING:
            return text[start:].decode()
        depth += (word == "(") - (word == ")")
    return ""
