import errno
import math
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.store.files.atomic import make_directory
from ablate.store.files.layout import Layout
from ablate.store.files.shards import TABLES, BadShard, ShardBuffer, content_hash, verify_shard, write_shard

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
    with pytest.raises(SpecError, match=r"a metric shard has the columns \['trial'"):
        shard(layout, colour=["red"] * 100)
    with pytest.raises(SpecError, match="'gossip' is not a shard table"):
        write_shard(layout, "gossip", {}, submission=SUBMISSION, worker=0, sequence=0)
    with pytest.raises(SpecError, match=r"column 'value' .* must have a value in every row; 1 have none"):
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
