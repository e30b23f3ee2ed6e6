"""Runs read from CSV: a table with the metrics of one run or of several, and the tables that a campaign exports."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

from ablate.grid.errors import SpecError, StoreError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.export.csv_file import unescape
from ablate.store.export.tracker_runs import FoundRun, LeftOut, Reading, Values, in_order, name_at

STEP: Final = "step"
"""The column of steps unless another is named."""
_NO_VALUE: Final = frozenset({"", "-", "na", "n/a", "#n/a", "<na>", "null", "none"})
_OF_TRIALS: Final = frozenset({"grid", "label", "operator", "seed", "trial"})
"""Columns of a table that a campaign exports and that is of trials."""
_EVALUATION: Final = _OF_TRIALS | {"attempt", "step", "name", "value", "items", "se_items", "later"}
"""Columns of a table of evaluations; the others are coordinates."""
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]*")
_REAL: Final = re.compile(r"-?[0-9]*\.?[0-9]+(e[-+]?[0-9]+)?|-?[0-9]+\.", re.IGNORECASE)
_TRUTH: Final = {"true": True, "false": False, "True": True, "False": False, "": None}


def is_export(file: Path) -> bool:
    """Tell by the headings whether a file is a table of trials that a campaign has exported."""
    with file.open("rb") as opened:
        return {*next(csv.reader([opened.readline().decode("utf-8-sig", "replace")]), [])} >= _OF_TRIALS


def read_csv(name: str, file: Path, step: str, config: Collection[str], needed: Collection[str] = ()) -> list[Reading]:
    """Read the runs of a file: rows with equal texts in the columns `config` are of one run.

    The column `step` has the steps; in a file without "step", each row is all of a run. Each other column with numbers
    is a metric; where there are columns `name` and `value`, a row is a metric. In place of a run with two values at a
    step there is SpecError. Raises SpecError for a file without steps, rows or text.
    """
    table = _Table(file)
    table.require_rows()
    if step not in table.header and step != STEP:
        has = some([*filter(None, table.header)], 12)
        raise SpecError(f"{file} has no column {step!r}, which says the step of a row; it has {has}: name it by --step")
    if missing := sorted({*needed} - {*table.header}):
        has = some([*filter(None, table.header)], 12)
        raise SpecError(f"{file} has no column {missing[0]!r}; it has {has}{suggest_name(missing[0], table.header)}")
    own = [column for column in table.header if column in config and column != step]
    others = [column for column in table.header if column not in (*own, step)]
    is_long = {"name", "value"} <= {*others}
    metrics = ["value"] if is_long else [column for column in others if column and not table.is_text(column)]
    runs, refused = dict[tuple[str, ...], Values](), dict[tuple[str, ...], str]()
    for line, row in table:
        key, at = tuple(row[column] for column in own), table.step(line, row[step]) if step in row else 0
        values = runs.setdefault(key, {})
        for column in metrics if at is not None else ():
            value, metric = table.number(line, row, column), unescape(row["name"]) if is_long else column
            if value is not None and repr(values.setdefault((at or 0, metric, False), (value, 0.0))[0]) != repr(value):
                refused.setdefault(key, f"{metric!r}{f' at step {at}' * (step in row)} in line {line}")
    read: list[Reading] = [
        FoundRun(name, file, None, _config(own, key), in_order(values), None, table.damage)
        for key, values in runs.items()
        if key not in refused
    ]
    if refused:
        runs_of_it = f" (so have {len(refused)} of its runs)" if len(refused) > 1 else ""
        place, remedy = (
            next(iter(refused.values())),
            "name the columns that tell runs apart by --seed, --label or --axis"
            f"{'' if step in table.header else ', or that of steps by --step'}",
        )
        read.append(SpecError(f"{file} has a second value of {place}{runs_of_it}, and a run has one; {remedy}"))
    if left := [
        repr(column) if column else "no name" for column in others if column not in (*metrics, *["name"] * is_long)
    ]:
        why = "columns that are no metrics are left out, of which --axis or --label makes part of the config"
        read.append(LeftOut(file, why, Counter(left)))
    return read


def read_exports(files: Sequence[Path]) -> list[Reading]:
    """Read the runs of tables that a campaign exported: metrics, evaluations, and the config of trials.

    Raises SpecError for a file without text.
    """
    runs, told = dict[str, _ExportedRun](), list[Reading]()
    for file in files:
        table = _Table(file)
        if {"layer", "item"} & {*table.header}:
            told.append(LeftOut(file, "the table is left out, as runs have metrics and evaluations"))
            continue
        for line, row in table:
            if row["trial"] not in runs:
                runs[row["trial"]] = _ExportedRun(table, unescape(row["label"]), _plain(row["seed"]))
            run = runs[row["trial"]]
            if "name" in row:
                run.take_value(table, line, row)
            else:
                run.take_trial(row)
    told += [run.read() for run in runs.values() if run.values]
    return told or [SpecError(f"{files[0]} has no values; import tables of metrics and evaluations, too")]


@final
class _ExportedRun:
    """A trial in exported tables."""

    def __init__(self, table: "_Table", label: str, seed: Any) -> None:
        self.values: Values = {}
        self._tables, self._label, self._config = {table.file: table}, label, {"seed": seed}
        self._failure: str | None = None

    def take_trial(self, row: dict[str, str]) -> None:
        config = json.loads(row["config"]) if row.get("config", "").startswith("{") else {}
        self._config = {**config, **self._config}
        self._failure = None if row.get("state", "done") == "done" else f"its trial was {row['state']}"

    def take_value(self, table: "_Table", line: int, row: dict[str, str]) -> None:
        self._tables[table.file] = table
        at, value, name = table.step(line, row["step"]), table.number(line, row, "value"), unescape(row["name"])
        is_metric = "wall_s" in row
        seconds = table.number(line, row, "wall_s") if is_metric else None
        if not is_metric:
            point = {each: table.number(line, row, each) for each in row if each not in _EVALUATION}
            name = name_at(name, {each: number for each, number in point.items() if number is not None})
        if at is not None and value is not None:
            self.values[at, name, not is_metric] = value, seconds or 0.0

    def read(self) -> FoundRun:
        name, scalars = f"{self._label} seed {self._config['seed']}", in_order(self.values)
        damage = next((table.damage for table in self._tables.values() if table.damage), None)
        return FoundRun(name, next(iter(self._tables)), self._label, self._config, scalars, self._failure, damage, 0.0)


@final
class _Table:
    """The rows of a file, and what of them cannot be read. Raises SpecError: it is no CSV."""

    def __init__(self, file: Path) -> None:
        self.file, self._faults = file, list[str]()
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SpecError(
                f"{file} is no CSV in UTF-8: byte {error.start} is no part of a character; save it as UTF-8"
            ) from error
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = list[tuple[int, list[str]]]()
        try:
            rows += ((reader.line_num, row) for row in reader if row)
        except csv.Error as error:
            self._blame(reader.line_num, str(error))
        if not self._faults and len(rows) > 1 and not text.endswith(("\n", "\r")):
            line, _ = rows.pop()
            self._blame(line, "it has no line end, so that it may be half a line")
        header = [unescape(column) for column in rows[0][1]] if rows else []
        if twice := sorted({column for column in header if column and header.count(column) > 1}):
            raise SpecError(f"{file} has the heading {twice[0]!r} {header.count(twice[0])} times; rename the others")
        for line, row in rows[1:]:
            if len(row) != len(header):
                self._blame(line, f"it has {len(row)} values, and the heading {len(header)}")
        self.header, self._rows = header, [each for each in rows[1:] if len(each[1]) == len(header)]

    def require_rows(self) -> None:
        """Raise SpecError if there are none, or StoreError if none can be read."""
        if self.damage is not None and not self._rows:
            raise StoreError(f"{self.file}: {self.damage}, and no row can be read")
        if not self._rows:
            raise SpecError(f"{self.file} has {'headings and no rows' if self.header else 'no headings'}")

    def __iter__(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number of a line, and its texts by heading."""
        return ((line, dict(zip(self.header, row, strict=True))) for line, row in self._rows)

    @property
    def damage(self) -> str | None:
        """The first fault, and how many more there are."""
        more = f" (the first fault of {len(self._faults)})" if len(self._faults) > 1 else ""
        return f"{self._faults[0]}{more}" if self._faults else None

    def is_text(self, column: str) -> bool:
        """Tell whether a column has texts and no number."""
        at = self.header.index(column)
        texts = (row[at] for _, row in self._rows if row[at].strip().lower() not in _NO_VALUE)
        numbers = [_number(text) is not None for text in texts]
        return bool(numbers) and not any(numbers)

    def number(self, line: int, row: dict[str, str], column: str) -> float | None:
        """Return the number in a column; None if there is none, or no number."""
        if (number := _number(row[column])) is None and row[column].strip().lower() not in _NO_VALUE:
            self._blame(line, f"{column!r} takes numbers, and has {row[column]!r}")
        return number

    def step(self, line: int, text: str) -> int | None:
        """Return the step; None if it is no whole number."""
        if (number := _number(text)) is not None and number.is_integer():
            return int(text) if _WHOLE.fullmatch(text) else int(number)
        self._blame(line, f"the step is {text!r}, no whole number")
        return None

    def _blame(self, line: int, fault: str) -> None:
        self._faults.append(f"line {line} is damaged: {fault}")


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)  # Python takes 1_000 for a number
    except ValueError:
        return None


def _config(columns: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    pairs = [(column, text) for column, text in zip(columns, texts, strict=True) if (column, text) != ("label", "")]
    return {column: unescape(text) if column == "label" else _plain(text) for column, text in pairs}


def _plain(text: str) -> Any:
    """Return a number or a truth value if a text is one, None if it is empty."""
    if text in _TRUTH:
        return _TRUTH[text]
    return int(text) if _WHOLE.fullmatch(text) else float(text) if _REAL.fullmatch(text) else unescape(text)
