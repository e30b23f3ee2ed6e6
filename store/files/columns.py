"""Columns of shards as Arrow arrays. `pyarrow.array` would import pandas, some 380 modules that no worker needs."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

POINT = pa.map_(pa.string(), pa.float64())
"""Where on its grid a value was taken: coordinate name -> value."""


def build_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build an array of texts, numbers or points; None is null, except in points.

    Raises AttributeError, TypeError or pyarrow.ArrowInvalid: a value is no such text, point or number.
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
    given = np.array([0 if value is None else value for value in values] if valid else values)
    numbers = given.astype(wide.to_pandas_dtype(), order="C", casting="same_kind" if len(values) else "unsafe")
    return pa.Array.from_buffers(wide, len(values), [valid, pa.py_buffer(numbers)]).cast(kind)


def _build_points(values: Sequence[Any]) -> pa.Array:
    points = [sorted(point.items()) for point in values]
    pairs = [pair for point in points for pair in point]
    offsets = pa.Array.from_buffers(pa.int32(), len(points) + 1, [None, _offsets(map(len, points), len(points))])
    names = build_column([name for name, _ in pairs], pa.string())
    coordinates = build_column([coordinate for _, coordinate in pairs], pa.float64())
    return pa.MapArray.from_arrays(offsets, names, coordinates)


def _offsets(lengths: Iterable[int], count: int) -> pa.Buffer:
    found = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, count), out=found[1:])
    return pa.py_buffer(found)
