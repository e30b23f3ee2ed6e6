"""Values of a result that a frame or Python cannot hold are refused; they would be wrong or crash."""

import re
from collections.abc import Iterator
from typing import Final

import duckdb
import polars as pl

from grid.errors import SpecError
from store.database import quoting

_NOT_IN_FRAMES: Final = re.compile(r"\b(INTERVAL|UNION|BIT|BIGNUM|TIME WITH TIME ZONE|VARIANT|GEOMETRY)\b")
_SECONDS: Final = re.compile(r"(\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*')|\bTIMESTAMP_S\b")
_DATES: Final = re.compile(r"\bDate(time)?\b")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
"""Names of fields and values of an ENUM."""
_DAYS: Final = (-719_162, 2_932_896)
"""Days from 1970-01-01 to the first day of year 1 and the last of year 9999, the limits of Python's dates."""
_INFINITY: Final = 2**63 - 1
"""Limit of the engine; in nanoseconds it is before the year 9999."""
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def check_types(relation: duckdb.DuckDBPyRelation) -> None:
    """Raises SpecError for a column whose type a frame cannot hold; says how to cast it."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if _NOT_IN_FRAMES.search(_QUOTED.sub("", str(kind))):
            raise SpecError(
                f"SQL: the column {name!r} is of the type {kind}, which a frame cannot hold; "
                "cast it, such as CAST(... AS VARCHAR), or epoch(...) for the seconds of an interval"
            )


def without_seconds(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows, with times in seconds as times in microseconds.

    Frames have no unit of seconds, and a conversion that multiplies would make a time of 1970 of an infinite one.
    """
    types = [_SECONDS.sub(lambda found: found[1] or "TIMESTAMP", str(kind)) for kind in relation.types]
    if types == [str(kind) for kind in relation.types]:
        return relation
    columns = zip(relation.columns, types, strict=True)
    casts = [f"CAST(#{at} AS {kind}) AS {quoting.identifier(name)}" for at, (name, kind) in enumerate(columns, 1)]
    return relation.project(", ".join(casts))


def check_dates(frame: pl.DataFrame) -> None:
    """Raises SpecError for a column with a date that Python does not have, as infinity is one."""
    for column in frame:
        if _may_hold_dates(column.dtype) and not all(_in_range(leaf) for leaf in _leaves(column)):
            raise SpecError(
                f"SQL: the column {column.name!r} has a date outside the years 1 to 9999; "
                "cast it, such as CAST(... AS VARCHAR), or see whether its seconds are milliseconds"
            )


def _may_hold_dates(kind: pl.DataType) -> bool:
    return kind.is_temporal() or (kind.is_nested() and bool(_DATES.search(str(kind))))


def _leaves(column: pl.Series) -> Iterator[pl.Series]:
    """The values inside `column` that are not nested."""
    kind = column.dtype
    if hasattr(kind, "key") and hasattr(kind, "value"):  # a Map, where this polars has them
        yield from _leaves(column.cast(pl.List(pl.Struct({"key": kind.key, "value": kind.value}))))
    elif isinstance(kind, pl.List | pl.Array):
        yield from _leaves(column.explode())
    elif isinstance(kind, pl.Struct):
        for field in kind.fields:
            yield from _leaves(column.struct.field(field.name))
    else:
        yield column


def _in_range(column: pl.Series) -> bool:
    kind = column.dtype
    if isinstance(kind, pl.Date):
        return _within(column, *_DAYS)
    if isinstance(kind, pl.Datetime):
        margin = 0 if kind.time_zone in (None, "UTC", "Etc/UTC") else 1  # in its zone it may be a day further
        unit = _PER_DAY[kind.time_unit]
        return _within(column, (_DAYS[0] + margin) * unit, (_DAYS[1] + 1 - margin) * unit - 1)
    return True


def _within(column: pl.Series, low: int, high: int) -> bool:
    return bool(column.to_physical().is_between(max(low, -_INFINITY + 1), min(high, _INFINITY - 1)).all())
