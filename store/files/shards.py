"""Shards: the long tables of a campaign as Parquet files, each written once by one worker.

The name, `<submission>-<worker>-<sequence>-<table>.<blake2b>.parquet`, has the hash of the whole file, so one rename
publishes both, and a flipped bit is found before the file is parsed.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ablate.grid.errors import SpecError, StoreError
from ablate.store.files.atomic import Durable, read_bytes, write_atomic
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.rows import check_row

POINT: Final = pa.map_(pa.string(), pa.float64())  # where on its grid a value was taken: coordinate name -> value
_KEYS: Final = (("trial", pa.string()), ("attempt", pa.int32()), ("step", pa.int64()), ("name", pa.string()))
_VALUE: Final = ("value", pa.float64())


def _schema(*columns: tuple[str, pa.DataType], optional: Collection[str] = ()) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in optional) for name, kind in (*_KEYS, *columns)])


TABLES: Final[Mapping[str, pa.Schema]] = {
    "metric": _schema(_VALUE, ("wall_s", pa.float64())),
    "evaluation": _schema(
        ("point", POINT), _VALUE, ("items", pa.int64()), ("se_items", pa.float64()), optional=("se_items",)
    ),
    "item": _schema(("point", POINT), ("item", pa.string()), _VALUE),
    "probe": _schema(("layer", pa.int16()), ("head", pa.int16()), ("point", POINT), _VALUE, optional=("layer", "head")),
}
"""The columns of each long table, in order."""

SHARD_NAME = (
    r"(?P<submission>[0-9]{8}T[0-9]{6}-[0-9a-f]{6})-(?P<worker>[0-9]+)-(?P<sequence>[0-9]+)"
    r"-(?P<table>[a-z]+)\.(?P<blake2b>[0-9a-f]{32})\.parquet"
)
_NAME = re.compile(SHARD_NAME)


class BadShard(StoreError):
    """A shard that must not be read; `reason` says why."""

    def __init__(self, path: Path, reason: str, *, lost: bool = True, passing: bool = False) -> None:
        super().__init__(f"{path} cannot be served: {reason}; the other shards are not affected")
        self.reason = reason
        self.lost = lost  # False if another version of ablate can read it
        self.passing = passing  # the very same file may be readable the next time


class ShardInfo(NamedTuple):
    """The name and footer of a verified shard."""

    path: Path
    table: str
    blake2b: str
    rows: int
    bytes: int
    members: tuple[tuple[str, int], ...] = ()
    """Names and rows of the shards that it replaces, in order; empty if a worker wrote it."""


def is_shard_name(name: str) -> bool:
    """Whether a file of this name was published as a shard."""
    return _NAME.fullmatch(name) is not None


class EncodedShard(NamedTuple):
    """A finished shard that is not on disk yet."""

    name: str
    data: bytes


def encode_shard(table: str, columns: Mapping[str, Sequence[Any]], prefix: str) -> EncodedShard:
    """The shard of `columns`, named `<prefix>-<table>.<hash>.parquet`."""
    schema = TABLES.get(table)
    if schema is None:
        raise SpecError(f"{table!r} is not a shard table; there are {sorted(TABLES)}")
    if set(columns) != set(schema.names):
        raise SpecError(f"a {table} shard has {sorted(columns)}; it has the columns {schema.names}")
    arrays = []
    for field in schema:
        values = columns[field.name]
        if not field.nullable and (missing := sum(value is None for value in values)):
            raise SpecError(f"column {field.name!r} of a shard has no value in {missing} rows; each must have one")
        arrays.append(_build_column(values, field.type))
    return _encode(table, pa.Table.from_arrays(arrays, schema=schema), prefix)


def _build_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build an array of texts, numbers or points; None is null, except in points.

    `pyarrow.array` would import pandas, some 380 modules that no worker needs. Raises AttributeError, TypeError or
    pyarrow.ArrowInvalid: a value is no such text, point or number.
    """
    if kind == POINT:
        return _build_points(values)
    absent = np.fromiter((value is None for value in values), bool, len(values))
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    if kind == pa.string():
        texts = [b"" if value is None else value.encode() for value in values]
        buffers = [valid, _offsets(map(len, texts), len(texts)), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(kind, len(values), buffers)
    wide = pa.float64() if pa.types.is_floating(kind) else pa.int64()
    filled = np.array([0 if value is None else value for value in values] if valid else values)
    numbers = filled.astype(wide.to_pandas_dtype(), order="C", casting="same_kind" if len(values) else "unsafe")
    return pa.Array.from_buffers(wide, len(values), [valid, pa.py_buffer(numbers)]).cast(kind)


def _build_points(values: Sequence[Any]) -> pa.Array:
    points = [sorted(point.items()) for point in values]
    pairs = [pair for point in points for pair in point]
    offsets = pa.Array.from_buffers(pa.int32(), len(points) + 1, [None, _offsets(map(len, points), len(points))])
    names = _build_column([name for name, _ in pairs], pa.string())
    coordinates = _build_column([coordinate for _, coordinate in pairs], pa.float64())
    return pa.MapArray.from_arrays(offsets, names, coordinates)


def _offsets(lengths: Iterable[int], count: int) -> pa.Buffer:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, count), out=offsets[1:])
    return pa.py_buffer(offsets)


def _encode(table: str, rows: pa.Table, prefix: str, more: Mapping[str, str] | None = None) -> EncodedShard:
    metadata = {"ablate.schema": str(FILE_SCHEMA), "ablate.table": table, "ablate.rows": str(rows.num_rows)}
    sink = pa.BufferOutputStream()
    described = rows.replace_schema_metadata({**metadata, **(more or {})})
    pq.write_table(described, sink, compression="zstd", write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    return EncodedShard(f"{prefix}-{table}.{content_hash(data)}.parquet", data)


def encode_members(shards: Sequence[ShardInfo]) -> EncodedShard:
    """Join small shards of one table to a large one, whose footer lists them. Raises BadShard."""
    first = shards[0]
    parts = [pq.read_table(pa.BufferReader(_bytes(each.path))).cast(TABLES[first.table]) for each in shards]
    members = json.dumps([(each.path.name, each.rows) for each in shards])
    prefix, _, _ = first.path.name.rpartition("-")
    return _encode(first.table, pa.concat_tables(parts), prefix, {"ablate.members": members})


def describe_member(name: str) -> re.Match[str]:
    """Return the parts of a shard's name, by the groups of `_NAME`. Raises StoreError: it is none."""
    named = _NAME.fullmatch(name)
    if named is None:
        raise StoreError(f"{name} is no name of a shard; its file was altered")
    return named


Written = dict[str, dict[str, Any]]
"""Rows of an attempt in shards, by table: the number of `rows`, the last `step`, and the names of the `shards`."""


def add_written(first: Written, second: Written) -> Written:
    """Add what two attempts wrote, or two parts of one."""
    written = {table: {**each, "shards": [*each["shards"]]} for table, each in first.items()}
    for table, each in second.items():
        total = written.setdefault(table, {"rows": 0, "step": 0, "shards": []})
        total["rows"] += each["rows"]
        total["step"] = max(total["step"], each["step"])
        total["shards"] += [name for name in each["shards"] if name not in total["shards"]]
    return written


def content_hash(data: bytes) -> str:
    """blake2b-128 of `data` as 32 hexadecimal digits."""
    return blake2b(data, digest_size=16).hexdigest()


def shard_prefix(submission: str, worker: int, sequence: int) -> str:
    """The part of a shard's name that says who wrote it and when in its sequence."""
    return f"{submission}-{worker:04d}-{sequence:06d}"


@final
class ShardBuffer:
    """Rows of one worker, kept in memory until `flush` publishes them as shards: one per table that has rows.

    A flush that fails keeps everything: the next one first retries the very same files.
    """

    def __init__(self, layout: Layout, *, submission: str, worker: int) -> None:
        self._layout = layout
        self._submission = submission
        self._worker = worker
        self._sequence = 0
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
        self._unwritten: list[EncodedShard] = []
        self._written: dict[tuple[str, int], Written] = {}

    def __len__(self) -> int:
        """Rows that are not yet in a shard."""
        return sum(map(len, self._rows.values()))

    @property
    def durable(self) -> bool:
        """Whether everything added so far is on disk."""
        return not len(self) and not self._unwritten

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Keep one row, its values in the order of `TABLES[table]`. Raises SpecError: no shard can hold it."""
        self._rows[table].append(check_row(table, row))

    def extend(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Keep several rows, or none of them. Raises as `add`."""
        self._rows[table] += [check_row(table, row) for row in rows]

    def pending(self, trial: str, attempt: int) -> dict[str, list[tuple[Any, ...]]]:
        """By table the rows of an attempt that are not yet in a shard."""
        pending = {table: [row for row in rows if row[:2] == (trial, attempt)] for table, rows in self._rows.items()}
        return {table: rows for table, rows in pending.items() if rows}

    def list_written(self, trial: str, attempt: int) -> Written:
        """Return what the shards of this buffer hold of an attempt; they are on disk when `flush` has succeeded."""
        return add_written(self._written.get((trial, attempt), {}), {})

    def forget(self, trial: str, attempt: int) -> None:
        self._written.pop((trial, attempt), None)

    def discard(self, trial: str, attempt: int) -> None:
        """Drop the rows of a deleted attempt: the next attempt has its number, and would have its rows, too."""
        for table, rows in self._rows.items():
            self._rows[table] = [row for row in rows if row[:2] != (trial, attempt)]
        self.forget(trial, attempt)

    def flush(self, durable: Durable = "file and name") -> list[Path]:
        """Publish all rows as durably as `durable` says; if that fails, they are kept for the next flush."""
        self._encode()
        written: list[Path] = []
        while self._unwritten:
            first = self._unwritten[0]
            place = self._layout.shard(first.name)
            if os.path.lexists(place.parent) and not place.parent.is_dir():  # a bad path stops no run
                place = self._layout.spool / first.name
            written.append(write_atomic(place, first.data, durable=durable))
            self._unwritten.pop(0)
        return written

    def _encode(self) -> None:
        prefix = shard_prefix(self._submission, self._worker, self._sequence)
        for table, rows in self._rows.items():
            if rows:
                columns = dict(zip(TABLES[table].names, zip(*rows, strict=True), strict=True))
                shard = encode_shard(table, columns, prefix)
                self._unwritten.append(shard)
                written: dict[tuple[str, int], dict[str, Any]] = {}
                for row in rows:
                    part = written.setdefault(row[:2], {"rows": 0, "step": 0, "shards": [shard.name]})
                    part["rows"] += 1
                    part["step"] = max(part["step"], row[2])
                for place, part in written.items():
                    self._written[place] = add_written(self._written.get(place, {}), {table: part})
                self._rows[table] = []
        self._sequence += 1


def verify_shard(path: Path) -> ShardInfo:
    """Check that `path` is a whole, unaltered shard of a known table and version; raise BadShard with the reason."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise BadShard(path, "its name is not <submission>-<worker>-<sequence>-<table>.<blake2b>.parquet")
    table = named["table"]
    if table not in TABLES:
        raise BadShard(path, f"its name speaks of the table {table!r}, and there are {sorted(TABLES)}")
    data = _bytes(path)
    if content_hash(data) != named["blake2b"]:
        raise BadShard(path, f"its {len(data)} bytes do not have the hash in its name: it was torn or altered")
    rows, members = _described_rows(path, data, table)
    return ShardInfo(path, table, named["blake2b"], rows, len(data), members)


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise BadShard(path, f"it cannot be read ({error.strerror})", passing=True) from error


def _described_rows(path: Path, data: bytes, table: str) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Rows and members of a shard whose hash is right, after checking what its footer says."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise BadShard(path, f"it is not a Parquet file ({error})") from error
    meta = metadata.metadata or {}
    version = meta.get(b"ablate.schema", b"").decode(errors="replace")
    reason = f"it has schema version {version or 'none'}, and this ablate reads {FILE_SCHEMA}"
    if not version.isdecimal():
        raise BadShard(path, reason)
    if int(version) != FILE_SCHEMA:
        remedy = "upgrade ablate" if int(version) > FILE_SCHEMA else "read it with the ablate that wrote it"
        raise BadShard(path, f"{reason}; {remedy}", lost=False)
    if meta.get(b"ablate.table") != table.encode():
        raise BadShard(path, f"its name says {table!r} and its footer {meta.get(b'ablate.table')!r}")
    if meta.get(b"ablate.rows") != str(metadata.num_rows).encode():
        raise BadShard(path, f"it holds {metadata.num_rows} rows and its footer promises {meta.get(b'ablate.rows')!r}")
    if not metadata.schema.to_arrow_schema().equals(TABLES[table], check_metadata=False):
        raise BadShard(path, f"its columns are not those of {table}")
    members = tuple((str(name), int(rows)) for name, rows in json.loads(meta.get(b"ablate.members", b"[]")))
    return int(metadata.num_rows), members
