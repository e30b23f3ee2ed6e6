"""Any result of SQL as a table of the browser takes it: what JSON has no form for becomes text."""

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import polars as pl

LONGEST: Final = 400  # characters of a cell; files have all
_EXACT: Final = 2**53  # beyond it the browser's numbers skip integers
_DIGITS: Final = 15  # digits of a decimal that the browser's numbers keep


def as_browser_table(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with columns of numbers that a browser can hold, and texts."""
    return pl.DataFrame([_column(frame[name]) for name in frame.columns])


def definitions(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Column definitions of AG Grid: numbers to the right, texts as they are."""
    pre = {"cellStyle": {"whiteSpace": "pre"}}
    return [{"field": each.name, **(align_numbers(each.dtype) or pre)} for each in frame]


def align_numbers(kind: pl.DataType) -> dict[str, Any]:
    """How a column of numbers stands in a table: to the right, decimals with four digits; nothing for other columns."""
    if not kind.is_numeric():
        return {}
    shown = {"function": "params.value == null ? '–' : d3.format('.4g')(params.value)"}
    properties = {"filter": "agNumberColumnFilter", "type": "rightAligned"}
    return properties | ({"valueFormatter": shown} if kind.is_float() else {})


def plain(value: object) -> str | int | float | None:
    """A value of any type as text, a number or None."""
    scalar = _unnest(value)
    if scalar is None or (isinstance(scalar, int | float) and not isinstance(scalar, bool)):
        return scalar
    text = _text(scalar)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _column(column: pl.Series) -> pl.Series:
    kind = column.dtype
    if isinstance(kind, pl.Decimal):  # sums of integers are such
        if kind.scale == 0 and _fits(column.cast(pl.Int128)):
            column = column.cast(pl.Int64)
        elif kind.scale and (kind.precision or 38) <= _DIGITS:
            column = column.cast(pl.Float64)
    finite = column.dtype.is_float() and column.drop_nulls().is_finite().all()
    if finite or (column.dtype.is_integer() and _fits(column)):
        return column
    texts = [None if value is None else str(plain(value)) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)


def _fits(column: pl.Series) -> bool:
    return all(-_EXACT <= end <= _EXACT for end in (column.min(), column.max()) if isinstance(end, int))


def _unnest(value: object) -> Any:
    """A value or nested values, with numbers that the browser cannot hold as text."""
    if isinstance(value, Mapping):
        return {str(name): _unnest(each) for name, each in value.items()}
    if isinstance(value, list | tuple | pl.Series):
        return [_unnest(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "\N{MINUS SIGN}∞"
    return str(value) if type(value) is int and abs(value) > _EXACT else value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value[:LONGEST].hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=_text)
    return str(value)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every scalar, and every empty object or list, by its dotted path: {"operator.gate.kind": "sigmoid", "a.0": 1}."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    parts = {f"{path}.{name}" if path else str(name): part for name, part in inner}
    return (
        {leaf: each for at, part in parts.items() for leaf, each in flat(part, at).items()} if parts else {path: value}
    )
