"""Shards: what they hold and refuse; many become one and nothing else changes, whenever the process dies."""

import errno
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import write_shard
from toy_campaign import run_quietly, toy_grid

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.monitoring.integrity import check_campaign
from ablate.store.files.atomic import make_directory
from ablate.store.files.layout import Layout
from ablate.store.files.shards import TABLES, BadShard, ShardBuffer, content_hash, verify_shard
from ablate.store.ingest import ingest as ingesting
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_shards import ShardIngest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

SUBMISSION = "20260102T030405-0a1b2c"
KEY = "ab" * 16
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "metric": [(KEY, 1, step, name, math.sin(step), 0.5) for step in range(50) for name in ("loss", "grad_norm")],
    "evaluation": [
        (KEY, 1, 7, "mse", {"sigma_x": 1.0, "sigma_f": 2.0}, math.inf, 100, None),
        (KEY, 1, 7, "validation_loss", {}, math.nan, 3, 0.25),
    ],
    "item": [(KEY, 1, 7, "accuracy", {"shots": 0.0}, f"line {n}", float(n % 2)) for n in range(3)],
    "probe": [(KEY, 2, 7, "number.alpha", None, None, {}, 1.0), (KEY, 2, 7, "number.beta", 1, 3, {"q": 1.0}, -2.0)],
}


def shard(layout: Layout, table: str = "metric", **changes: Any) -> Path:
    columns = dict(zip(TABLES[table].names, map(list, zip(*ROWS[table], strict=True)), strict=True))
    return write_shard(layout, table, {**columns, **changes}, submission=SUBMISSION, worker=3, sequence=41)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_shard_says_what_it_is_and_reads_back(tmp_path: Path, table: str) -> None:
    path = shard(Layout(tmp_path), table)
    found = verify_shard(path)
    assert (found.table, found.rows, found.bytes) == (table, len(ROWS[table]), path.stat().st_size)
    assert path.name == f"{SUBMISSION}-0003-000041-{table}.{found.blake2b}.parquet"
    rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
    assert repr([[*row.values()] for row in rows]) == repr(
        [[sorted(value.items()) if isinstance(value, dict) else value for value in row] for row in ROWS[table]]
    )


def renamed(path: Path, table: str | None = None) -> Path:
    """The file under the name that its bytes deserve."""
    prefix, rest = path.name.rsplit("-", 1)
    name = f"{prefix}-{table or rest.split('.')[0]}.{content_hash(path.read_bytes())}.parquet"
    return path.rename(path.with_name(name))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "schema version none"),
        ({"ablate.schema": "2"}, "schema version 2, and this ablate reads 1"),
        ({"ablate.schema": "1", "ablate.table": "probe"}, "its name says 'metric' and its footer b'probe'"),
        ({"ablate.schema": "1", "ablate.table": "metric", "ablate.rows": "3"}, "holds 2 rows and its footer promises"),
        ({"ablate.schema": "1", "ablate.table": "metric", "ablate.rows": "2"}, "its columns are not those of metric"),
    ],
)
def test_a_file_with_a_right_hash_and_a_wrong_footer_is_refused(
    tmp_path: Path, metadata: dict[str, str], reason: str
) -> None:
    path = tmp_path / f"{SUBMISSION}-0000-000000-metric.x.parquet"
    pq.write_table(pa.table({"trial": ["a", "b"]}).replace_schema_metadata(metadata), path)
    with pytest.raises(BadShard, match=reason):
        verify_shard(renamed(path))


def test_only_the_columns_of_the_wire_format_are_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(SpecError, match=r"a metric shard has .*; it has the columns \['trial'"):
        shard(layout, colour=["red"] * 100)
    with pytest.raises(SpecError, match="'gossip' is not a shard table"):
        write_shard(layout, "gossip", {}, submission=SUBMISSION, worker=0, sequence=0)
    with pytest.raises(SpecError, match=r"column 'value' .* has no value in 1 rows"):
        shard(layout, value=[None, *[0.0] * 99])
    assert not layout.shards()


def filled(layout: Layout) -> ShardBuffer:
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for table, rows in ROWS.items():
        buffer.extend(table, rows)
    return buffer


def rows_on_disk(layout: Layout) -> int:
    return sum(verify_shard(path).rows for path in layout.shards())


def test_a_flush_publishes_one_shard_per_table_with_rows(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    buffer = filled(layout)
    assert (len(buffer), buffer.durable) == (107, False)
    assert sorted(verify_shard(path).table for path in buffer.flush()) == sorted(TABLES)
    assert (len(buffer), buffer.durable) == (0, True)
    assert buffer.flush() == []
    buffer.add("probe", ROWS["probe"][0])
    assert [verify_shard(path).table for path in buffer.flush()] == ["probe"]
    assert rows_on_disk(layout) == 108


def test_a_rename_that_was_not_made_durable_is_repeated_under_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    for fan in range(256):
        make_directory(layout.spool / f"{fan:02x}")
    buffer = filled(layout)

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("ablate.store.files.atomic.sync_directory", refuse)
        with pytest.raises(EnvironmentProblem):
            buffer.flush()
    assert len(layout.shards()) == 1  # visible, but perhaps not after a crash
    buffer.flush()
    assert rows_on_disk(layout) == 107


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of six short trials, with a shard of each of three tables for each."""
    root = tmp_path_factory.mktemp("trained") / "campaign"
    run_quietly(root, toy_grid())
    shutil.rmtree(root / "store", ignore_errors=True)
    return root


@pytest.fixture
def layout(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A copy of the trained campaign; two small shards are enough to be joined."""
    monkeypatch.setattr(ingesting, "LEAST", 2)
    return Layout(shutil.copytree(trained, tmp_path / "campaign"))


@pytest.fixture
def before(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """The content of the store while no shard is joined."""
    with monkeypatch.context() as patched:
        patched.setattr(ingesting, "LEAST", 10**9)
        found = content(layout)
    layout.live.unlink()
    assert len(layout.shards()) == 18
    return found


def content(layout: Layout) -> tuple[str, list[str]]:
    with Store.open(layout.root) as store:
        return store.content_hash(), store.warnings()


def test_joined_shards_say_what_the_small_ones_said(layout: Layout, before: tuple[str, list[str]]) -> None:
    assert content(layout) == before
    assert len(layout.shards()) == 3
    assert ingest(layout) == Ingested()
    assert check_campaign(layout.root) == []
    rebuild(layout.root)
    assert content(layout) == before
    run_quietly(layout.root, toy_grid(seeds=range(6)))
    assert content(layout) != before
    assert len(layout.shards()) == 6
    now = content(layout)
    layout.live.unlink()
    assert content(layout) == now


@pytest.mark.parametrize(
    ("owner", "name"), [(ShardIngest, "insert_joined"), (ShardIngest, "_summarise"), (Path, "unlink")]
)
def test_an_ingest_that_is_killed_while_it_joins_loses_and_doubles_nothing(
    layout: Layout, before: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            ingest(layout)
    for _ in range(2):
        assert content(layout) == before
    layout.live.unlink()
    assert content(layout) == before
    assert len(layout.shards()) == 3


def test_a_damaged_large_shard_is_told_and_mended_by_the_file(layout: Layout, before: tuple[str, list[str]]) -> None:
    assert content(layout) == before
    large = next(path for path in layout.shards() if "-evaluation." in path.name)
    data = large.read_bytes()
    large.write_bytes(data[:-1] + b"x")
    with Store.open(layout.root) as store:
        assert large.name in store.bad_shards()["file"].to_list()
        assert store.sql("SELECT count(DISTINCT trial) AS n FROM doubt WHERE kind = 'lost'")["n"].item() == 6
        assert store.sql("FROM v_final WHERE name = 'mse'").is_empty()
    assert any(damage.file.endswith(large.name) for damage in check_campaign(layout.root))
    large.write_bytes(data)
    assert content(layout) == before
