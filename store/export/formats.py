"""A frame in each of the formats, and which format a file's name asks for."""

import io
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Final

import polars as pl

from ablate.grid.errors import SpecError
from ablate.grid.suggestions import suggest_name
from ablate.store.export import latex, markdown
from ablate.store.export.csv_file import csv_text
from ablate.store.export.plain import plain

FORMATS: Final = ("csv", "parquet", "tex", "md")
_EXPONENT: Final = re.compile(r"(?<=\d)e([-+]\d+)")
_DIGITS: Final = 4  # significant digits of a number in LaTeX
_TEXT_ROWS: Final = 10_000  # more rows than that no page holds


def format_of(file: Path) -> str:
    """The format that the name of `file` asks for. Raises SpecError when it is none of the known ones."""
    ending = file.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        hint = suggest_name(ending, list(FORMATS))
        raise SpecError(
            f"{file.name!r} is no table to write; end it with {', '.join('.' + each for each in FORMATS)}{hint}"
        )
    return ending


def encode(frame: pl.DataFrame, kind: str) -> bytes:
    """`frame` in the format `kind`: every row and column. Raises SpecError when no page holds it."""
    if kind == "csv":
        return csv_text(frame).encode()
    if kind == "parquet":
        sink = io.BytesIO()
        frame.write_parquet(sink)
        return sink.getvalue()
    if frame.height > _TEXT_ROWS:
        raise SpecError(
            f"{frame.height} rows do not fit a page of at most {_TEXT_ROWS}; write them as .csv or .parquet"
        )
    escape, table = (latex.escape, latex.table) if kind == "tex" else (markdown.escape, markdown.table)
    rows = [
        [
            escape_number(f"{value:.{_DIGITS}g}", kind)
            if kind == "tex" and isinstance(value, float)
            else escape(_text(value))
            for value in row
        ]
        for row in frame.rows()
    ]
    return table([*map(escape, frame.columns)], rows, [kind.is_numeric() for kind in frame.dtypes]).encode()


def escape_number(text: str, kind: str) -> str:
    """A formatted number or interval on a page, "tex" or "md": real minus signs, powers of ten for exponents."""
    escape, power = (latex.escape, r" $\times 10^{{{}}}$") if kind == "tex" else (markdown.escape, r" × 10\^{}")
    parts = enumerate(_EXPONENT.split(text))
    return "".join(power.format(int(part)) if at % 2 else escape(part.replace("-", "−")) for at, part in parts)


def _text(value: object) -> str:
    """A value as a table for people shows it; null is an en dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(plain(value), ensure_ascii=False) if isinstance(value, dict | list) else str(value)
