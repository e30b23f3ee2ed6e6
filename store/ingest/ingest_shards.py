"""Shards into tables: verified, inserted together with their ledger rows, or quarantined with a reason."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, final

import duckdb
import pyarrow as pa

from ablate.grid.errors import EnvironmentProblem
from ablate.store.database import quoting
from ablate.store.database.connection import first_line, transaction, translate_error
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.record_fields import file_signature
from ablate.store.files.shards import TABLES, BadShard, ShardInfo, describe_member, is_shard_name, verify_shard
from ablate.store.ingest.ingest_counts import Ingested

_REMEDY = "; run `ablate run SPEC --rerun-stale` to train its trials again, or restore the file"
_REMEDY_LATER = "; run the same `ablate evaluate` with --again, or restore the file"

_PROMISED = """
    SELECT DISTINCT file FROM (SELECT unnest(a.shards) AS file FROM attempt a JOIN counted c USING (trial, attempt)
                               WHERE a.status = 'ok' AND c.until IS NULL) ANTI JOIN shard USING (file)
"""
"""Shards that the record of a result names and the database does not have."""

BATCH_ROWS = 2_000_000
"""Rows that one transaction inserts at most, unless one shard has more: what a kill in the middle can undo."""


@final
class ShardIngest:
    """Brings the shards of a campaign into the live database."""

    def __init__(self, layout: Layout, connection: duckdb.DuckDBPyConnection, counts: Ingested) -> None:
        self._layout = layout
        self._connection = connection
        self._counts = counts
        self._signatures: dict[str, str] = {}
        self._quarantined: dict[str, tuple[str, str]] = {}
        """By name the signature of what lay in quarantine when the shards were listed, and the reason."""

    def run(self, deadline: float = math.inf) -> bool:
        """Insert new sound shards, quarantine the others. After `deadline`, begin no more; False if some are left."""
        execute, named = self._connection.execute, self._list_evaluated()
        files = {**{path.name: path for path in self._layout.shards()}, **named}
        self._recheck(files)
        files |= {name: self._layout.shard(name) for (name,) in execute(_PROMISED).fetchall() if name not in files}
        quarantined = execute("SELECT file, signature, reason FROM bad_shard").fetchall()
        self._quarantined = {name: (signature, reason) for name, signature, reason in quarantined}
        for name in self._quarantined.keys() - files.keys():
            execute("DELETE FROM bad_shard WHERE file = $file", {"file": name})
            self._counts.forgotten += 1
        ledger = dict(execute("SELECT file, blake2b FROM shard").fetchall())
        members = dict(execute("SELECT file, inside FROM shard WHERE inside IS NOT NULL").fetchall())
        joined_files = set(members.values())
        known = set(ledger.values())
        batch: list[ShardInfo] = []
        waiting, whole = 0, True
        for name, path in files.items():
            before = self._quarantined.get(name)
            if name in members and members[name] in files:
                path.unlink(missing_ok=True)  # left by an ingest that was killed
            if name in ledger or name in joined_files or (before is not None and before[0] == file_signature(path)):
                continue
            if time.monotonic() > deadline:
                whole = False
                continue
            info = self._verify(path, known)
            if info is None:
                continue
            if info.members or (batch and waiting + info.rows > BATCH_ROWS):
                self._insert(batch)
                batch, waiting = [], 0
            if info.members:
                self.insert_joined(info)
                ledger |= dict.fromkeys((name for name, _ in info.members), info.blake2b)
                continue
            batch.append(info)
            known.add(info.blake2b)
            waiting += info.rows
        self._insert(batch)
        return whole

    def _list_evaluated(self) -> dict[str, Path]:
        """The shards that records of later evaluations name; removes the rows of those that none names any more."""
        execute = self._connection.execute
        evaluated = execute("SELECT trial, attempt, unnest(shards) FROM evaluated ORDER BY ALL").fetchall()
        named = {name: self._layout.evaluations(trial, attempt) / name for trial, attempt, name in evaluated}
        for name, number, table in execute('SELECT file, number, "table" FROM shard WHERE later').fetchall():
            if name not in named:
                with transaction(self._connection):
                    self._withdraw([number], table)
        return named

    def _recheck(self, files: Mapping[str, Path]) -> None:
        """Verify again every ingested shard whose file has changed; take back the rows of those that are damaged."""
        ledger = self._connection.execute(
            "SELECT coalesce(inside, file) AS name, signature, list(number), list(file), "
            'any_value("table") FROM shard GROUP BY name, signature'
        ).fetchall()
        for name, signature, numbers, members, table in ledger:
            path = files.get(name)
            if path is None or file_signature(path) == signature:
                continue
            now = file_signature(path)
            try:
                verify_shard(path)
            except BadShard as error:
                with transaction(self._connection):
                    self._withdraw(numbers, table)
                    for member in dict.fromkeys((name, *members)):
                        self._enter_bad(member, _in_words(path, error), "" if error.passing else now)
                self._counts.bad_shards += 1
            else:
                query = "UPDATE shard SET signature = $signature WHERE list_contains($numbers, number)"
                self._connection.execute(query, {"numbers": numbers, "signature": now})

    def _withdraw(self, numbers: Sequence[int], table: str) -> None:
        """Remove shards and their rows, and retry quarantined shards with the same bytes."""
        execute, these = self._connection.execute, {"numbers": list(numbers)}
        execute(
            "UPDATE bad_shard SET signature = '' FROM shard s WHERE list_contains($numbers, s.number) "
            "AND contains(bad_shard.file, s.blake2b)",
            these,
        )
        execute("DELETE FROM shard WHERE list_contains($numbers, number)", these)
        execute(f"DELETE FROM {table} WHERE list_contains($numbers, shard)", these)
        execute("DELETE FROM last_value WHERE list_contains($numbers, shard)", these)
        execute("DELETE FROM recorded")
        execute("INSERT INTO recorded SELECT DISTINCT trial, attempt FROM last_value")

    def _verify(self, path: Path, known: set[str]) -> ShardInfo | None:
        signature = self._signatures[path.name] = file_signature(path)
        try:
            info = verify_shard(path)
        except BadShard as error:
            self._quarantine(path.name, _in_words(path, error), "" if error.passing else signature)
            return None
        if info.blake2b in known:
            self._quarantine(path.name, "its bytes are those of another shard, whose rows count already", signature)
            return None
        return info

    def _quarantine(self, name: str, reason: str, signature: str) -> None:
        """Set a shard aside. With an empty `signature` it is tried again next time; the same reason is told once."""
        if self._quarantined.get(name) == (signature, reason):
            return
        with transaction(self._connection):
            self._enter_bad(name, reason, signature)
        self._counts.bad_shards += 1

    def _enter_bad(self, name: str, reason: str, signature: str) -> None:
        row = {"file": name, "reason": reason, "signature": signature, "found": time.time()}
        self._connection.execute("DELETE FROM bad_shard WHERE file = $file", {"file": name})
        self._connection.execute("INSERT INTO bad_shard VALUES ($file, $reason, $signature, $found)", row)

    def _insert(self, batch: Sequence[ShardInfo]) -> None:
        """Insert the shards of `batch` in one transaction, or, if the engine refuses one of them, one by one."""
        if not batch:
            return
        try:
            self._insert_together(batch)
        except duckdb.Error as error:
            problem = translate_error(error, self._layout.live)
            broken = isinstance(error, duckdb.FatalException | duckdb.InternalException)
            if isinstance(problem, EnvironmentProblem) or broken or "Corrupt database" in str(error):
                raise problem from error  # the database is at fault, and not the shard
            if len(batch) > 1:
                for info in batch:
                    self._insert([info])
                return
            path = batch[0].path
            signature = "" if isinstance(error, duckdb.IOException) else file_signature(path)
            self._quarantine(path.name, f"the engine cannot read it ({first_line(error)})", signature)

    def _insert_together(self, batch: Sequence[ShardInfo]) -> None:
        connection = self._connection
        with transaction(connection):
            first = self._next_number()
            rows = [
                _ledger_row(info.path.name, info.rows, self._signatures[info.path.name])
                | {"bytes": info.bytes, "later": _is_later(info.path), "number": number}
                for number, info in enumerate(batch, start=first)
            ]
            connection.register("incoming", pa.Table.from_pylist(rows))
            for table, schema in TABLES.items():
                paths = [quoting.pattern(str(info.path)) for info in batch if info.table == table]
                if paths:
                    columns = ", ".join(schema.names)
                    connection.execute(
                        f"INSERT INTO {table} ({columns}, shard) SELECT {columns}, number "
                        "FROM read_parquet($paths, filename = true) JOIN incoming ON parse_filename(filename) = file",
                        {"paths": paths},
                    )
                    self._summarise(table, first)
            connection.execute("INSERT INTO shard BY NAME SELECT * FROM incoming")
            connection.execute("DELETE FROM bad_shard WHERE file IN (SELECT file FROM incoming)")
            connection.unregister("incoming")
        self._counts.rows += sum(info.rows for info in batch)
        self._counts.shards += len(batch)

    def _summarise(self, table: str, first: int) -> None:
        """Keep the last values of the shards from the number `first` on, and which attempts have any."""
        value = "arg_max(value, step)" if table == "metric" else "NULL"
        self._connection.execute(
            "INSERT INTO last_value SELECT shard, $table, trial, attempt, name, max(step), "
            f"{value} FROM {table} WHERE shard >= $first GROUP BY shard, trial, attempt, name",
            {"table": table, "first": first},
        )
        self._connection.execute(
            "INSERT INTO recorded SELECT DISTINCT trial, attempt FROM last_value "
            "ANTI JOIN recorded USING (trial, attempt) WHERE shard >= $first",
            {"first": first},
        )

    def insert_joined(self, info: ShardInfo) -> None:
        """Insert the rows of a large shard that are not in yet, and delete the files of its members."""
        connection, signature = self._connection, file_signature(info.path)
        names = [name for name, _ in info.members]
        query = "SELECT file FROM shard WHERE list_contains($names, file)"
        known = {name for (name,) in connection.execute(query, {"names": names}).fetchall()}
        first = self._next_number()
        members = _members(info, known, first, signature)
        with transaction(connection):
            if members:
                columns = ", ".join(TABLES[info.table].names)
                connection.register("member", pa.Table.from_pylist(members))
                connection.execute(
                    f"INSERT INTO {info.table} ({columns}, shard) SELECT {columns}, number FROM read_parquet($path, "
                    'file_row_number = true) JOIN member ON file_row_number >= "first" AND file_row_number < until',
                    {"path": quoting.pattern(str(info.path))},
                )
                connection.execute('INSERT INTO shard BY NAME SELECT * EXCLUDE ("first", until) FROM member')
                connection.unregister("member")
                self._summarise(info.table, first)
            connection.execute(
                "UPDATE shard SET inside = $inside, signature = $signature WHERE list_contains($names, file)",
                {"inside": info.path.name, "signature": signature, "names": names},
            )
            gone = {"names": [*names, info.path.name]}
            connection.execute("DELETE FROM bad_shard WHERE list_contains($names, file)", gone)
        self._counts.rows += sum(member["rows"] for member in members)
        self._counts.shards += len(members)
        for name in names:
            for path in (self._layout.shard(name), self._layout.spool / name):
                path.unlink(missing_ok=True)

    def _next_number(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(number), 0) + 1 FROM shard").fetchall()[0][0])


def _in_words(path: Path, error: BadShard) -> str:
    remedy = _REMEDY_LATER if _is_later(path) else _REMEDY if is_shard_name(path.name) else ""
    return error.reason + (remedy if error.lost else "")


def _is_later(path: Path) -> bool:
    return path.parent.name == "evaluations"


def _ledger_row(name: str, rows: int, signature: str) -> dict[str, Any]:
    """The row of the table `shard` of a file that a worker wrote, without its number."""
    named = describe_member(name)
    row = {"file": name, "rows": rows, "bytes": 0, "schema": FILE_SCHEMA, "later": False, "signature": signature}
    row |= {part: named[part] for part in ("blake2b", "table", "submission")}
    row |= {part: int(named[part]) for part in ("worker", "sequence")}
    return row | {"ingested": time.time()}


def _members(info: ShardInfo, known: Collection[str], first: int, signature: str) -> list[dict[str, Any]]:
    """The ledger rows of the members of a large shard that are not `known`, numbered from `first` on.

    `first` and `until` of a member are its rows in the file.
    """
    ends = accumulate(rows for _, rows in info.members)
    fresh = [(name, rows, end) for (name, rows), end in zip(info.members, ends, strict=True) if name not in known]
    return [
        _ledger_row(name, rows, signature) | {"number": number, "first": end - rows, "until": end}
        for number, (name, rows, end) in enumerate(fresh, start=first)
    ]
