"""A published-style table: means with their intervals, bold if as good as the best, and signs for missing values."""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.dashboards.data.formatting import SUPERSCRIPT, count
from ablate.store.export.cells import CellTable, ExportColumn, ExportEntry, latex_cells, round_to_spread
from ablate.store.published.tables import trust_of

SIGNS: Final = {
    "failed": ("×", "no run has a usable value, and some failed"),
    "not finite": ("!", "runs finished, and none has a value that can be averaged"),
    "outstanding": ("…", "runs have not finished"),
    "unmeasured": ("–", "nothing here was measured that could stand there"),
}
"""By the reason why there is no value: the sign in its place, and its words."""


class TableText(NamedTuple):
    """One entry of a table as it is read."""

    words: str
    best: bool = False  # not shown to be worse than the best: bold, and said in `hint`
    hint: str = ""  # tooltip: n, or the reason for its absence
    printed: str = ""  # the paper's value; empty if the paper prints none
    note: str = ""  # a remark below the value
    printed_marks: str = ""  # signs of what is under the table about the printed value: "a, b"
    marks: str = ""  # the same about one's own


class Sheet(NamedTuple):
    """A table as it is read."""

    columns: Sequence[str]
    rows: Sequence[str]
    entries: Sequence[Sequence[TableText]]  # by row, then by column
    corner: str = ""  # name of the axis whose levels the columns are
    legend: Sequence[tuple[str, str]] = ()  # footnotes: a sign and its words; notes on all values come first


def table_sheet(frame: pl.DataFrame, corner: str = "") -> Sheet:
    """The frame as a table; rows and columns stand in the order of their first appearance.

    Args:
        frame: row, column, mean, spread (half an interval, null with one seed), n, planned, missing ("failed",
            "not finite", "outstanding" or "unmeasured", null where there is a mean), why (in words), best; and printed
            where a paper prints something, note where something has to be read with the value, mark (what the paper
            itself says of a value or a dash), notes (numbers of what is known against it) and differs (how one's own is
            another, parts joined by "; "), which get signs.
        corner: what the columns are levels of.
    """
    names = [list(dict.fromkeys(frame[name])) for name in ("row", "column")]
    at = {(row["row"], row["column"]): row for row in frame.iter_rows(named=True)}
    everywhere, marks = _marks(list(at.values()))
    entries = [[_text(at.get((row, column)), marks) for column in names[1]] for row in names[0]]
    shown = {each.words for row in entries for each in row}
    signs = [(sign, words) for sign, words in SIGNS.values() if sign in shown]
    legend = [*everywhere, *((sign, words) for words, sign in marks.items()), *signs]
    return Sheet(names[1], names[0], entries, corner, legend)


def _marks(rows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Notes on all printed or all own values, and the sign of each note on some: letters, as the notes appear."""
    everywhere: list[tuple[str, str]] = []
    some: dict[str, None] = {}
    for name, remarks, known in (("All printed", _of_printed, "printed"), ("All own", _of_own, "mean")):
        notes = [remarks(row) for row in rows if row.get(known) not in (None, "")]
        of_all = set.intersection(*map(set, notes)) if len(notes) > 1 else set()
        everywhere += [(name, "; ".join(each for each in notes[0] if each in of_all))] if of_all else []
        some |= dict.fromkeys(each for words in notes for each in words if each not in of_all)
    return everywhere, {words: _letter(place) for place, words in enumerate(some)}


def _of_printed(row: Mapping[str, Any]) -> list[str]:
    mark = f"the paper: {row['mark']}" if row.get("mark") else ""
    return [each for each in (mark, *(trust_of([number]) for number in row.get("notes") or ())) if each]


def _of_own(row: Mapping[str, Any]) -> list[str]:
    return row["differs"].split("; ") if row.get("differs") and row["mean"] is not None else []


def _letter(place: int) -> str:
    before, last = divmod(place, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)


def table_latex(frame: pl.DataFrame, caption: str) -> str:
    """The same table in LaTeX, laid out as `ablate table` writes one; needs booktabs. `caption` says all of it."""
    rows = list(dict.fromkeys(frame["row"]))
    columns = []
    empty = ExportEntry(None, None, 0, 0, "unmeasured", best=False)
    for (name,), part in frame.group_by("column", maintain_order=True):
        shown = part.select("mean", "spread", "n", "planned", "missing", pl.col("best").fill_null(value=False))
        at = dict(zip(part["row"], starmap(ExportEntry, shown.iter_rows()), strict=True))
        columns.append(ExportColumn(str(name), {}, None, "linear", [at.get(row, empty) for row in rows]))
    return latex_cells(CellTable("", rows, columns, "interval", 0.05), caption)


def _text(row: Mapping[str, Any] | None, marks: Mapping[str, str]) -> TableText:
    if row is None:
        return TableText("", hint="the paper has no such cell")
    printed = row.get("printed") or ""
    of_printed, of_own = (
        ", ".join(marks[each] for each in of if each in marks) for of in (_of_printed(row), _of_own(row))
    )
    if row["mean"] is None:
        sign, _ = SIGNS[row["missing"] or "unmeasured"]
        return TableText(sign, hint=row["why"] or "", printed=printed, printed_marks=of_printed)
    few = f"{row['n']} of {count(row['planned'], 'seed')}"
    hint = f"{few}; not shown to be worse than the best" if row["best"] else few
    note = "; ".join(filter(None, (few if row["n"] < row["planned"] else "", row.get("note"))))
    return TableText(_number(row["mean"], row["spread"]), bool(row["best"]), hint, printed, note, of_printed, of_own)


def _number(mean: float, spread: float | None) -> str:
    rounded = round_to_spread(mean, spread)
    value = rounded.value.replace("-", "−")
    both = value if rounded.spread is None else f"{value} ± {rounded.spread}"
    if not rounded.exponent:
        return both
    power = f" · 10{str(rounded.exponent).translate(SUPERSCRIPT)}"
    return f"({both}){power}" if rounded.spread is not None else f"{both}{power}"
