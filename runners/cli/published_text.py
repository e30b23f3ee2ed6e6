"""Terminal tables of the papers' printed cells, and of their claims beside the results of a grid."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import polars as pl

from runners.output import format_count, say, write, write_table
from store.analysis.published_matching import format_point, named
from store.published.tables import notes

if TYPE_CHECKING:
    from store.published.tables import PublishedCell

_CELL_HEADINGS: Final = (
    *("table", "row", "column", "printed", "unit", "better", "± items", "operator", "measured here as", "doubts"),
)
_CLAIM_HEADINGS: Final = (
    *("table", "claim", "published", "here", "low", "high", "unit", "cell", "pairs", "p (Holm)", "word", "reason"),
)
_MOST_REASONS: Final = 4


def write_tables(cells: "Sequence[PublishedCell]") -> None:
    """Write a line per table: its subject and its operators."""
    groups: dict[tuple[str, str], list[PublishedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.paper, cell.paper_table), []).append(cell)
    rows = [
        (
            *table,
            len(members),
            ", ".join(dict.fromkeys(cell.operator for cell in members if cell.operator)) or None,
            members[0].caption,
        )
        for table, members in groups.items()
    ]
    write_table(("paper", "table", "cells", "operators", "about"), rows)
    say(
        f"ablate: {format_count(len(cells), 'cell')}; --paper 003 --table T1 shows those of a table, "
        "--compare puts your own results beside them"
    )


def write_cells(cells: "Sequence[PublishedCell]") -> None:
    """Write a line per cell, then the marks and the doubts."""
    write_table(_CELL_HEADINGS, [_cell_line(cell) for cell in cells])
    dashes = dict.fromkeys(f"{cell.printed}: {cell.mark}" for cell in cells if cell.mark and cell.printed == "-")
    marks = dict.fromkeys(cell.mark for cell in cells if cell.mark and cell.printed != "-")
    for line in (*dashes, *marks, *doubts(number for cell in cells for number in cell.notes)):
        write(f"  {line}")
    if any(cell.binomial_se is not None for cell in cells):
        say(
            "ablate: ± items is the binomial standard error of the usual test set; only 003 T4 prints an error, "
            "and no paper says how many seeds it trained"
        )


def write_claims(claims: pl.DataFrame, *, everything: bool) -> None:
    """Write a line per judged claim, or per claim, then differences and counts."""
    judged, others = (claims.filter((pl.col("word") == "not comparable") == unequal) for unequal in (False, True))
    shown = claims if everything else judged
    if not shown.is_empty():
        write_table(_CLAIM_HEADINGS, [_claim_line(row) for row in shown.iter_rows(named=True)])
    for line in dict.fromkeys(_difference(row) for row in judged.iter_rows(named=True)):
        write(f"  {line}")
    for line in doubts(number for numbers in judged["notes"] for number in numbers):
        write(f"  {line}")
    words = [f"{count} {word}" for word, count in judged["word"].value_counts(sort=True).rows()]
    counts = ", ".join([*words, f"{others.height} not comparable"])
    say(f"ablate: of {format_count(claims.height, 'claim')}: {counts}")
    if not everything and not others.is_empty():
        for reason, count in others["reason"].value_counts(sort=True).rows()[:_MOST_REASONS]:
            say(f"ablate:   {count}: {reason}")
        say("ablate: --all shows every claim and why it is not comparable; docs/published.md explains the words")


def doubts(numbers: Iterable[int]) -> list[str]:
    """Write each inconsistency with one of these numbers as a sentence, each once."""
    known = {note.note: note for note in notes()}
    return [f"doubt {n}: {known[n].paper}, {known[n].place}: {known[n].text}" for n in sorted(set(numbers))]


def flat(cells: "Sequence[PublishedCell]") -> pl.DataFrame:
    """Return the fields of cells as columns; nested values become JSON text."""
    return pl.DataFrame(
        {field.name: [_plain(getattr(cell, field.name)) for cell in cells] for field in fields(cells[0])}
    )


def _plain(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | tuple) else value


def _cell_line(cell: "PublishedCell") -> tuple[object, ...]:
    point = f" at {format_point(cell.point)}" if cell.point else ""
    return (
        f"{cell.paper} {cell.paper_table}",
        *(cell.row_label, cell.column_label, cell.printed, cell.unit, cell.better),
        None if cell.binomial_se is None else f"{cell.binomial_se:.2g}",
        named(cell) if cell.operator else None,
        f"{cell.measurement}{point}" if cell.measurement else None,
        ", ".join(map(str, cell.notes)) or None,
    )


def _claim_line(row: Mapping[str, object]) -> tuple[object, ...]:
    return (
        *(f"{row['paper']} {row['paper_table']}", row["claim"]),
        *(_round(row[name]) for name in ("published", "own", "low", "high")),
        *(row["unit"], row["label"], row["pairs"], _round(row["p_holm"]), row["word"], row["reason"]),
    )


def _round(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _difference(row: Mapping[str, object]) -> str:
    return f"{row['paper']} {row['paper_table']}: {row['differs'] or 'nothing is known to be different'}"
