"""Tables as CSV, and runs read from it: the metrics of one run or of several."""

import csv
import io
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from ablate.grid.errors import SpecError, StoreError
from ablate.grid.names import some
from ablate.store.export.plain import plain
from ablate.store.export.tracker_runs import FoundRun, in_order

_FORMULA: Final = r"^\s*[=+@-]"
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


def read_csv(name: str, file: Path, step: str, config: Collection[str]) -> list[FoundRun]:
    """Read the runs of a file: rows with equal texts in the columns `config` are of one run.

    The column `step` has the steps. Each other column of numbers is a metric; where there are columns `name` and
    `value`, as `ablate export metrics` writes them, a row is a metric, at `wall_s` if it says so. Raises SpecError for
    a file without steps or without text.
    """
    header, rows, damage = _read_rows(file, step)
    own = [column for column in header if column in config and column != step]
    is_long = {"name", "value"} <= {*header}
    metrics = ["value"] if is_long else [each for each in header if each not in (*own, step)]
    texts = set() if is_long else {each for each in metrics if _is_text(rows, each)}
    runs = dict[tuple[str, ...], dict[tuple[str, int], tuple[float, float]]]()
    try:
        for line, row in rows:
            values = runs.setdefault(tuple(row[column] for column in own), {})
            at = _step(file, line, row, step)
            for column in metrics:
                if row[column] == "" or column in texts:
                    continue
                place = _unescape(row["name"] if is_long else column), at
                seconds = _number(file, line, row, "wall_s") if is_long and row.get("wall_s") else 0.0
                _insert(file, line, values, place, (_number(file, line, row, column), seconds))
    except StoreError as error:
        damage = str(error)
    return [
        FoundRun(name, (file,), None, dict(zip(own, map(_plain, key), strict=True)), in_order(values), None, damage)
        for key, values in runs.items()
    ]


def _read_rows(file: Path, step: str) -> tuple[list[str], list[tuple[int, dict[str, str]]], str | None]:
    """Return the headings, the whole rows with the number of their lines, and where the file is damaged."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{file} is no CSV in UTF-8: byte {error.start} is no part of a character") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, damage = list[tuple[int, list[str]]](), None
    try:
        rows += ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        damage = f"{file} is damaged in line {reader.line_num}: {error}"
    if not rows or step not in rows[0][1]:
        has = some(rows[0][1], 12) if rows else "nothing"
        raise SpecError(f"{file} has no column {step!r}, which says the step of a row; it has {has}: name it by --step")
    header = rows.pop(0)[1]
    if damage is None and rows and not text.endswith(("\n", "\r")):
        damage = f"{file} ends without a line end, so that its line {rows.pop()[0]} may be half a line"
    for at, (line, row) in enumerate(rows):
        if len(row) != len(header):
            damage = f"{file} is damaged in line {line}: it has {len(row)} values, and the heading {len(header)}"
            del rows[at:]
            break
    return header, [(line, dict(zip(header, row, strict=True))) for line, row in rows], damage


def _is_text(rows: Sequence[tuple[int, dict[str, str]]], column: str) -> bool:
    """Tell whether the first value of a column is no number."""
    first = next((row[column] for _, row in rows if row[column]), "0")
    return isinstance(_plain(first), str)


def _insert(
    file: Path, line: int, values: dict[tuple[str, int], tuple[float, float]], place: tuple[str, int], value: Any
) -> None:
    if place in values:
        raise StoreError(f"{file} has a second value of {place[0]!r} at step {place[1]} in line {line}")
    values[place] = value


def _step(file: Path, line: int, row: dict[str, str], column: str) -> int:
    number = _number(file, line, row, column)
    if not number.is_integer():
        raise StoreError(f"{file} is damaged in line {line}: the step is {row[column]!r}, no whole number")
    return int(number)


def _number(file: Path, line: int, row: dict[str, str], column: str) -> float:
    try:
        return float(row[column])
    except ValueError as error:
        raise StoreError(
            f"{file} is damaged in line {line}: {column!r} takes numbers, and has {row[column]!r}"
        ) from error


def _plain(text: str) -> Any:
    """Return a number if a text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _unescape(text)


def _unescape(text: str) -> str:
    """Take the apostrophe from a text that would be a formula without."""
    return text[1:] if text.startswith("'") and re.match(_FORMULA, text[1:]) else text
