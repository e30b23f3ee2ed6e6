"""Seconds from shards to a database that answers: ten million rows, ten thousand tiny shards, snapshot, rebuild, views.

python benchmarks/ingest.py [--trials 1000] [--rows 10000] [--tiny 10000] [--repeat 3] [--threads N]

One trial per large shard. Every line says its target and whether the least of its times met it.
"""

import shutil
import tempfile
from pathlib import Path

import duckdb
from big_campaign import curves, write_campaign, write_rows
from measurement import Took, machine, read_options, report, tell, took

from ablate.grid.key import content_key
from ablate.store.database.connection import open_live
from ablate.store.files.layout import Layout
from ablate.store.ingest.content_hash import content_hash
from ablate.store.ingest.database_snapshot import publish
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.ingest.ingest_shards import ShardIngest
from ablate.store.ingest.rebuild import rebuild


def main() -> None:
    options = read_options(__doc__, trials=1_000, rows=10_000, tiny=10_000, repeat=3, threads=None)
    tell({**machine(), "trials": options.trials, "rows_per_shard": options.rows, "tiny_shards": options.tiny})
    with tempfile.TemporaryDirectory() as folder:
        tiny = Layout(Path(folder) / "tiny")
        for number in range(options.tiny):
            write_rows(tiny, "metric", curves(content_key(str(number // 10)), 40 * (number % 10), 100), number)
        report("tiny_shards", [once(tiny, options.threads) for _ in range(options.repeat)], target_s=10)
        layout = Layout(Path(folder) / "large")
        write_campaign(layout, options.trials, options.rows)
        report("ingest", [once(layout, options.threads) for _ in range(options.repeat)], target_s=6)
        whole(layout, options.repeat, options.threads)


def once(layout: Layout, threads: int | None) -> Took:
    """Bring all shards into a fresh database, verified and committed."""
    shutil.rmtree(layout.store, ignore_errors=True)
    with ingest_lock(layout, wait=True), open_live(layout.live, threads=threads) as connection:
        intake = Ingested()
        found = took(ShardIngest(layout, connection, intake).run)
    if intake.bad_shards or intake.shards != len(layout.shards()):
        raise SystemExit(f"{intake.shards} shards arrived; {len(layout.shards())} were written")
    return found


def whole(layout: Layout, repeat: int, threads: int | None) -> None:
    """The rest of a reader's way: the plan, snapshot, views, an ingest without news, and a rebuild."""
    ingest(layout, threads=threads)
    report("publish", [took(lambda: publish(layout)) for _ in range(repeat)], target_s=0.5)
    tell({"name": "size", "mib": round(layout.snapshot.stat().st_size / 2**20, 1)})
    report("nothing_new", [took(lambda: ingest(layout)) for _ in range(repeat)])
    with duckdb.connect(str(layout.snapshot), read_only=True) as connection:
        before = content_hash(connection)
        for view in summary_views(connection):
            runs = [took(lambda: connection.table(view).fetchall()) for _ in range(repeat)]  # noqa: B023
            report(view, runs, target_s=0.3)
    report("rebuild", [took(lambda: rebuild(layout))], target_s=30)
    with duckdb.connect(str(layout.snapshot), read_only=True) as connection:
        if content_hash(connection) != before:
            raise SystemExit("the rebuilt store says something else")


def summary_views(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """All views but those of the rows themselves."""
    found = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL").fetchall()
    return [str(name) for (name,) in found if name not in ("v_metric", "v_evaluation", "v_item", "v_probe")]


if __name__ == "__main__":
    main()
