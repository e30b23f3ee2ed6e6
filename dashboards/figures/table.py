"""A published-style table: rows and columns of means with their intervals, bold what is as good as the best.

Bold, rounding and signs are those of `store.export`; what is missing stands as a sign with its reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from store.export.cells import Cells, Column, Entry
from store.export.cells_text import latex_cells
from store.export.rounding import rounded

SIGNS: Final = {"failed": "×", "unfinished": "…", "unmeasured": "–"}
"""In place of a value, by the reason why there is none."""

_SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Text(NamedTuple):
    """One entry of a table as it is read."""

    words: str
    best: bool = False
    """Not shown to be worse than the best: bold, and said in `hint`."""
    hint: str = ""
    """What there is to know of it: n, or why it is missing."""
    printed: str = ""
    """What a paper prints in its place; empty where nothing is printed."""
    note: str = ""
    """What has to be read with it."""


class Sheet(NamedTuple):
    """A table as it is read."""

    columns: Sequence[str]
    rows: Sequence[str]
    entries: Sequence[Sequence[Text]]
    """By row, then by column."""


def table_sheet(found: pl.DataFrame) -> Sheet:
    """The frame as a table; rows and columns stand in the order of their first appearance.

    Args:
        found: row, column, mean, spread (half an interval, null with one seed), n, planned, missing ("failed",
            "unfinished" or "unmeasured", null where there is a mean), why (in words), best; and printed where a paper
            prints something, and note where something has to be read with the value.
    """
    names = [list(dict.fromkeys(found[name])) for name in ("row", "column")]
    at = {(row["row"], row["column"]): row for row in found.iter_rows(named=True)}
    entries = [[_text(at.get((row, column))) for column in names[1]] for row in names[0]]
    return Sheet(names[1], names[0], entries)


def table_latex(found: pl.DataFrame, caption: str) -> str:
    """The same table in LaTeX, laid out as `ablate table` writes one; needs booktabs. `caption` says all of it."""
    rows = list(dict.fromkeys(found["row"]))
    columns = []
    for (name,), part in found.group_by("column", maintain_order=True):
        at = {row["row"]: row for row in part.iter_rows(named=True)}
        columns.append(Column(str(name), {}, None, "linear", [_entry(at.get(row)) for row in rows]))
    return latex_cells(Cells("", rows, columns, "interval", 0.05, []), caption)


def _entry(row: Mapping[str, Any] | None) -> Entry:
    if row is None:
        return Entry(None, None, 0, 0, "unmeasured", best=False)
    return Entry(row["mean"], row["spread"], row["n"], row["planned"], row["missing"], bool(row["best"]))


def _text(row: Mapping[str, Any] | None) -> Text:
    if row is None:
        return Text(SIGNS["unmeasured"], hint="the paper has no such cell")
    printed = row.get("printed") or ""
    if row["mean"] is None:
        return Text(SIGNS[row["missing"] or "unmeasured"], hint=row["why"] or "", printed=printed)
    few = f"{row['n']} of {row['planned']} seeds"
    hint = f"{few}; not shown to be worse than the best" if row["best"] else few
    return Text(_number(row["mean"], row["spread"]), bool(row["best"]), hint, printed, row.get("note") or "")


def _number(mean: float, spread: float | None) -> str:
    found = rounded(mean, spread)
    value = found.value.replace("-", "−")
    both = value if found.spread is None else f"{value} ± {found.spread}"
    if not found.exponent:
        return both
    power = f" · 10{str(found.exponent).translate(_SUPERSCRIPT)}"
    return f"({both}){power}" if found.spread is not None else f"{both}{power}"
