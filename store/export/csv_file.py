"""Tables as CSV."""

import json
import re
from typing import Final

import polars as pl

from ablate.store.export.plain import plain

_FORMULA: Final = r"^'*\s*[=+@-]"
"""Texts that a spreadsheet runs, and those that would be read as one of these with an apostrophe before."""
_NUMBER: Final = r"(?i)^-$|^[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)$"
"""Texts that a spreadsheet reads as numbers, and a dash."""


def csv_text(frame: pl.DataFrame) -> str:
    """`frame` as CSV. An apostrophe stands before texts that a spreadsheet would run as a formula."""
    texts = flat(frame).with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    formula = pl.col(pl.String).str.contains(_FORMULA) & ~pl.col(pl.String).str.contains(_NUMBER)
    cells = texts.with_columns(pl.when(formula).then("'" + pl.col(pl.String)).otherwise(pl.col(pl.String)).name.keep())
    headings = {name: f"'{name}" for name in frame.columns if re.match(_FORMULA, name)}
    return cells.rename(headings).write_csv()


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Nested columns as JSON text and bytes as hexadecimal digits, which CSV can hold."""
    texts = [
        pl.Series(
            name,
            [
                None if value is None else json.dumps(plain(value), ensure_ascii=False)
                for value in frame[name].to_list()
            ],
            dtype=pl.String,
        )
        for name, kind in frame.schema.items()
        if kind.is_nested()
    ]
    return frame.with_columns(*texts, pl.col(pl.Binary).bin.encode("hex"))


def unescape(text: str) -> str:
    """Take the apostrophe from a text that would be a formula without."""
    return text[1:] if text.startswith("'") and re.match(_FORMULA, text[1:]) else text
