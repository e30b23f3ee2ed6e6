"""Rows per second from shards into the database, and the time to publish a snapshot, as JSON lines.

python benchmarks/ingest.py [--shards 100] [--rows 10000] [--repeat 3] [--threads N]
"""

import argparse
import json
import math
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa

from store.database import open_live
from store.ingest import ingest
from store.intake import Intake
from store.layout import Layout
from store.locking import ingest_lock
from store.shards import write_shard
from store.snapshot import publish
from store.store import Store

SUBMISSION = "20260101T000000-abcdef"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    print(json.dumps({"machine": machine(), "shards": options.shards, "rows_per_shard": options.rows}))
    with tempfile.TemporaryDirectory() as folder:
        spool = Layout(Path(folder) / "source")
        begin = time.perf_counter()
        for sequence in range(options.shards):
            write_shard(
                spool, "metric", rows(sequence, options.rows), submission=SUBMISSION, worker=0, sequence=sequence
            )
        report("write", (time.perf_counter() - begin) / options.shards, "s per shard, fsynced")
        total = options.shards * options.rows
        took = [once(spool, Path(folder) / f"run{turn}", options.threads, total) for turn in range(options.repeat)]
        report("ingest", total / statistics.median(took), "rows/s, shards to committed rows, hashes verified")
        whole(Path(folder) / "run0", total)


def machine() -> dict[str, object]:
    """What the numbers depend on."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "duckdb": duckdb.__version__,
        "pyarrow": pa.__version__,
    }


def rows(sequence: int, count: int) -> dict[str, list[object]]:
    """The metrics of a few trials, as training writes them: three names per step."""
    trial = f"{sequence:032x}"
    return {
        "trial": [trial] * count,
        "attempt": [1] * count,
        "step": [i // 3 for i in range(count)],
        "name": [("loss", "grad_norm", "learning_rate")[i % 3] for i in range(count)],
        "value": [math.exp(-1e-4 * i) * math.sin(i + sequence) for i in range(count)],
        "wall_s": [1e-3 * i for i in range(count)],
    }


def once(source: Layout, root: Path, threads: int | None, total: int) -> float:
    """Seconds to bring all shards into a fresh database, committed."""
    layout = Layout(root)
    layout.root.mkdir()
    layout.spool.symlink_to(source.spool)
    with ingest_lock(layout, wait=True), open_live(layout.live, threads=threads) as connection:
        intake = Intake(layout, connection)
        begin = time.perf_counter()
        intake.run()
        took = time.perf_counter() - begin
    if intake.rows != total:
        raise SystemExit(f"{intake.rows} rows arrived; {total} were written")
    return took


def whole(root: Path, total: int) -> None:
    """The rest of a reader's way: checkpoint and snapshot, an ingest with nothing to do, and a query."""
    layout = Layout(root)
    begin = time.perf_counter()
    publish(layout)
    report("publish", time.perf_counter() - begin, f"s for a snapshot of {total} rows")
    report("size", layout.snapshot.stat().st_size / total, "bytes per row")
    begin = time.perf_counter()
    ingest(layout)
    report("nothing_new", time.perf_counter() - begin, "s for an ingest without news")
    with Store.open(root, refresh=False) as store:
        begin = time.perf_counter()
        store.sql("SELECT trial, name, arg_max(value, step) FROM v_metric GROUP BY trial, name")
        report("last_values", time.perf_counter() - begin, "s for the last value of every metric")


def report(name: str, value: float, unit: str) -> None:
    """One line."""
    print(json.dumps({"name": name, "value": round(value, 6), "unit": unit}))


if __name__ == "__main__":
    main()
