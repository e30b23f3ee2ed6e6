"""The papers' tables and their cells, in words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import polars as pl

from runners.output import counted, say, write, write_table
from store.published.matching import named, pointed
from store.published.tables import notes

if TYPE_CHECKING:
    from store.published.tables import PublishedCell

_HEADINGS = ("table", "row", "column", "printed", "unit", "better", "± items", "operator", "measured here as", "doubts")


def write_tables(cells: "Sequence[PublishedCell]") -> None:
    """A line per table: what it is about, and which operators are in it."""
    groups: dict[tuple[str, str], list[PublishedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.paper, cell.paper_table), []).append(cell)
    rows = [
        (
            *place,
            len(found),
            ", ".join(dict.fromkeys(c.operator for c in found if c.operator)) or None,
            found[0].caption,
        )
        for place, found in groups.items()
    ]
    write_table(("paper", "table", "cells", "operators", "about"), rows)
    say(
        f"ablate: {counted(len(cells), 'cell')}; --paper 003 --table T1 shows those of a table, "
        "--compare puts your own results beside them"
    )


def write_cells(cells: "Sequence[PublishedCell]") -> None:
    """A line per cell, then what is marked and doubted."""
    write_table(_HEADINGS, [_line(cell) for cell in cells])
    marks = dict.fromkeys(f"{each.printed}: {each.mark}" for each in cells if each.mark and each.printed == "-")
    others = dict.fromkeys(each.mark for each in cells if each.mark and each.printed != "-")
    for told in (*marks, *others, *doubts(number for each in cells for number in each.notes)):
        write(f"  {told}")
    if any(each.binomial_se is not None for each in cells):
        say(
            "ablate: ± items is the binomial standard error of the usual test set; only 003 T4 prints an error, "
            "and no paper says how many seeds it trained"
        )


def doubts(numbers: Iterable[int]) -> list[str]:
    """The inconsistencies with these numbers, each once, a sentence each."""
    known = {each.note: each for each in notes()}
    return [f"doubt {n}: {known[n].paper}, {known[n].place}: {known[n].text}" for n in sorted(set(numbers))]


def flat(cells: "Sequence[PublishedCell]") -> pl.DataFrame:
    """The fields of cells as columns, nested ones as JSON text."""
    return pl.DataFrame({each.name: [_plain(getattr(cell, each.name)) for cell in cells] for each in fields(cells[0])})


def _plain(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | tuple) else value


def _line(cell: "PublishedCell") -> tuple[object, ...]:
    where = f" at {pointed(cell.point)}" if cell.point else ""
    return (
        f"{cell.paper} {cell.paper_table}",
        *(cell.row_label, cell.column_label, cell.printed, cell.unit, cell.better),
        None if cell.binomial_se is None else f"{cell.binomial_se:.2g}",
        named(cell) if cell.operator else None,
        f"{cell.measurement}{where}" if cell.measurement else None,
        ", ".join(map(str, cell.notes)) or None,
    )
