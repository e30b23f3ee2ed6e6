"""From files to the live database: what is new since the last time, each fact once, by one process at a time."""

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import duckdb

from ablate.grid.errors import EnvironmentProblem
from ablate.store.database.connection import open_live
from ablate.store.database.grid_views import refresh_grid_views
from ablate.store.files.atomic import write_atomic
from ablate.store.files.change_tracker import DirectoryCache
from ablate.store.files.layout import Layout
from ablate.store.files.shards import BadShard, ShardInfo, encode_members, verify_shard
from ablate.store.files.trust import trust, trusts
from ablate.store.ingest.database_snapshot import publish, snapshot_is_current, sweep
from ablate.store.ingest.derived_rows import find_doubts, leave_out_rows, restore_rows
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.ingest.ingest_records import RecordIngest
from ablate.store.ingest.ingest_shards import ShardIngest

SMALL_BYTES = 256 * 1024  # shards of fewer bytes are joined

Conclude = Callable[[Layout, duckdb.DuckDBPyConnection], None]
"""Writes what follows from all results into a database that the caller holds."""

LEAST, MOST = 1000, 5000  # from `LEAST` small shards of a table on they are joined, at most `MOST` at once


class IngestOptions(TypedDict, total=False):
    """Options of `ingest` that readers pass on."""

    thorough: bool
    most_s: float
    conclude: Conclude | None


def ingest(
    root: Path | Layout,
    *,
    wait: bool = True,
    threads: int | None = None,
    thorough: bool = True,
    most_s: float = math.inf,
    conclude: Conclude | None = None,
) -> Ingested:
    """Bring everything new in the campaign `root` into its database and publish a snapshot of it.

    `conclude` is called unless something was left unread, and the rows of an earlier call are older than the results.
    While another process ingests, it waits, or without `wait` returns at once, `busy`. Without `thorough` it looks only
    where something has changed, by `ablate.store.files.change_tracker`. After `most_s` seconds it reads no more new
    shards and attempts, and no plans that are too large. Raises StoreError: another version wrote the database, or it
    cannot be read.
    """
    layout = root if isinstance(root, Layout) else Layout(root)
    with ingest_lock(layout, wait=wait) as held:
        if not held:
            return Ingested(busy=True)
        sweep(layout)
        foreign = not trusts(layout, "store")
        with open_live(layout.live, threads=threads, empty=foreign) as connection:
            if foreign:
                trust(layout, "store")
            # not before: opening may put an empty database in place of an older version's
            directories = DirectoryCache(layout, thorough=thorough)
            counts = ingest_into(layout, connection, directories.same, most_s)
            if counts.shards:
                compact(layout, connection)
            if conclude is not None and not (counts.unread_fans or counts.unread_plans):
                conclude(layout, connection)
            elif counts != Ingested():
                for table in ("verdict", "verdict_check"):  # none is better than what other results said
                    connection.execute(f"DELETE FROM {table}")
            troubled = connection.execute("SELECT file FROM bad_record").fetchall()
        if not (counts == Ingested() and snapshot_is_current(layout)):
            publish(layout)
            counts.published = True
        with suppress(EnvironmentProblem):  # without a memory, the next look is thorough
            directories.remember((file for (file,) in troubled), counts.unread_fans)
        return counts


def ingest_into(
    layout: Layout, connection: duckdb.DuckDBPyConnection, unchanged: Collection[str] = (), most_s: float = math.inf
) -> Ingested:
    """Bring everything new into the database; the caller holds the lock. Trial directories `unchanged` are skipped."""
    counts = Ingested()
    records = RecordIngest(layout, connection, counts, unchanged, most_s)
    shards = ShardIngest(layout, connection, counts)
    if math.isfinite(most_s):
        if records.plans_are_large():
            return Ingested(unread_fans=set(layout.fans()), unread_plans=True)
        if not shards.run(time.monotonic() + most_s / 2):  # first: a result without its shards would look damaged
            records.run_plans()
            counts.unread_fans.update(layout.fans())
            return counts
    records.run()
    restore_rows(connection)
    shards.run()
    leave_out_rows(connection)
    find_doubts(connection)
    refresh_grid_views(connection)
    if counts != Ingested():
        execute = connection.execute
        execute("DELETE FROM meta WHERE name = 'judged'")
    return counts


def compact(layout: Layout, connection: duckdb.DuckDBPyConnection) -> int:
    """Join the small shards of each table that has many, after their ingest; return the number of joined files.

    A large shard lists the names and rows of its members in the footer. It is published before the members' files are
    deleted, so a crash in between loses nothing: the next ingest finds the members in both and keeps the large one.
    """
    small = connection.execute(
        'SELECT "table", list(file ORDER BY number) FROM shard WHERE NOT later AND inside IS NULL AND bytes < $small '
        'GROUP BY "table" HAVING count(*) >= $least ORDER BY ALL',
        {"small": SMALL_BYTES, "least": LEAST},
    ).fetchall()
    paths = {path.name: path for path in layout.shards()} if small else {}
    joined = 0
    for _, names in small:
        shards: list[ShardInfo] = []
        for name in names[:MOST]:
            try:
                shards += [verify_shard(paths[name])] if name in paths else []
            except BadShard:  # the next ingest puts it aside
                continue
        if len(shards) > 1:
            encoded = encode_members(shards)
            large = write_atomic(layout.shard(encoded.name), encoded.data)
            ShardIngest(layout, connection, Ingested()).insert_joined(verify_shard(large))
            joined += len(shards)
    return joined
