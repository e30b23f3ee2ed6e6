"""Values of a result that a frame or Python cannot hold are refused; they would be wrong or crash."""

import re
from typing import Final

import duckdb
import polars as pl

from grid.errors import SpecError

_NOT_IN_FRAMES: Final = re.compile(
    r"\b(INTERVAL|UNION|BIT|BIGNUM|TIME WITH TIME ZONE|VARIANT|GEOMETRY|TIMESTAMP_S)\b|\b(DATE|TIMESTAMP\w*)\b.*[\])]"
)
"""Types, and dates inside of lists, structs and maps."""
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
"""Names of fields and values of an ENUM."""
_DAYS: Final = (-719_162, 2_932_896)
"""Days from 1970-01-01 to the first day of year 1 and the last of year 9999, the limits of Python's dates."""
_INFINITY: Final = 2**63 - 1
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def check_types(relation: duckdb.DuckDBPyRelation) -> None:
    """Raises SpecError for a column whose type a frame cannot hold; says how to cast it."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if _NOT_IN_FRAMES.search(_QUOTED.sub("", str(kind))):
            raise SpecError(
                f"SQL: the column {name!r} is of the type {kind}, which a frame cannot hold; "
                "cast it, such as CAST(... AS VARCHAR), or epoch(...) for the seconds of an interval"
            )


def check_dates(frame: pl.DataFrame) -> None:
    """Raises SpecError for a column with a date that Python does not have, as infinity is one."""
    for column in frame:
        kind, (low, high) = column.dtype, _DAYS
        if isinstance(kind, pl.Datetime):
            margin = 1 if kind.time_zone else 0  # in its zone it may be a day further
            unit = _PER_DAY[kind.time_unit]
            low, high = (low + margin) * unit, (high + 1 - margin) * unit - 1
        elif not isinstance(kind, pl.Date):
            continue
        if not column.to_physical().is_between(max(low, 1 - _INFINITY), min(high, _INFINITY - 1)).all():
            raise SpecError(
                f"SQL: the column {column.name!r} has a date outside the years 1 to 9999; "
                "cast it, such as CAST(... AS VARCHAR), or see whether its seconds are milliseconds"
            )
