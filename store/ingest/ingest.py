"""From files to the live database: what is new since the last time, each fact once, by one process at a time."""

import math
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, final

import duckdb

from grid.errors import EnvironmentProblem
from store.database.connection import open_live
from store.database.grid_views import refresh_grid_views
from store.files.change_tracker import DirectoryCache
from store.files.layout import Layout
from store.files.trust import trust, trusts
from store.ingest.compaction import compact
from store.ingest.database_snapshot import publish, snapshot_is_current, sweep
from store.ingest.derived_rows import find_doubts, leave_out_rows, restore_rows
from store.ingest.ingest_lock import ingest_lock
from store.ingest.ingest_records import RecordIngest
from store.ingest.ingest_shards import ShardIngest


@final
class Ingested(NamedTuple):
    """Counts of one ingest."""

    rows: int = 0
    """Rows of long tables."""
    shards: int = 0
    bad_shards: int = 0
    """Shards put into quarantine this time."""
    forgotten: int = 0
    """Shards that were in quarantine and whose file is gone."""
    plans: int = 0
    """Grids and submissions read, read again, or gone."""
    attempts: int = 0
    """Attempts that are new or have changed."""
    evaluated: int = 0
    """Later evaluations of finished trials that are new, were made again, or are gone."""
    bad_records: int = 0
    """JSON files and lines that could not be read this time."""
    unread: int = 0
    """New attempts that were left for the next ingest, since the time was over."""
    unread_fans: frozenset[str] = frozenset()
    """Directories of trials that were left for the next ingest, or not read wholly."""
    unread_shards: int = 0
    """New shards that were left for the next ingest; then no new attempt is read either."""
    unread_plans: tuple[str, ...] = ()
    """New or changed plans that are too large for the time; then nothing newer is read."""
    published: bool = False
    """Whether readers have a new snapshot."""
    busy: bool = False
    """Whether nothing was done because another process is ingesting."""


def ingest(
    root: Path | Layout,
    *,
    wait: bool = True,
    threads: int | None = None,
    snapshot: bool = True,
    thorough: bool = True,
    most_s: float = math.inf,
) -> Ingested:
    """Bring everything new in the campaign `root` into its database and publish a snapshot of it.

    While another process ingests, it waits, or without `wait` returns at once, `busy`. Give one of `threads` while
    trials train on the other cores. Without `thorough` it looks only where something has changed, by
    `store.files.change_tracker`. After `most_s` seconds it reads no more new shards and attempts, and no plans that are
    too large; what begins with `unread` says what is left.
    Raises StoreError: another version wrote the database, or it cannot be read.
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
            looked = DirectoryCache(layout, thorough=thorough)
            found = ingest_into(layout, connection, looked.same, most_s)
            if snapshot and found.shards:
                compact(layout, connection)
            troubled = connection.execute("SELECT file FROM bad_record").fetchall()
        if snapshot and not (found == Ingested() and snapshot_is_current(layout)):
            publish(layout)
            found = found._replace(published=True)
        with suppress(EnvironmentProblem):  # without a memory, the next look is thorough
            looked.remember((file for (file,) in troubled), found.unread_fans)
        return found


def ingest_into(
    layout: Layout, connection: duckdb.DuckDBPyConnection, unchanged: Collection[str] = (), most_s: float = math.inf
) -> Ingested:
    """Bring everything new into the database; the caller holds the lock. Trial directories `unchanged` are skipped."""
    records, shards = RecordIngest(layout, connection, unchanged, most_s), ShardIngest(layout, connection)
    if math.isfinite(most_s):
        left = Ingested(unread_fans=frozenset(layout.fans()), unread_plans=records.large_plans())
        if left.unread_plans:
            return left
        shards.run(time.monotonic() + most_s / 2)  # first: a result without its shards would look damaged
        if shards.unread:
            records.run_plans()
            return left._replace(rows=shards.rows, shards=shards.shards, unread_shards=shards.unread)
    records.run()
    restore_rows(connection)
    shards.run()
    leave_out_rows(connection)
    find_doubts(connection)
    refresh_grid_views(connection)
    return Ingested(
        rows=shards.rows,
        shards=shards.shards,
        bad_shards=shards.bad_shards,
        forgotten=shards.forgotten,
        plans=records.plans,
        attempts=records.attempts,
        evaluated=records.evaluated,
        bad_records=records.problems,
        unread=records.unread,
        unread_fans=frozenset(records.unread_fans),
    )
