"""The command `published`: what the papers' tables say, alone or beside a grid's own results."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from ablate.grid.errors import SpecError
from ablate.grid.names import some
from ablate.runners.cli.options import Csv, Flag, GridFlags, Json, flag_group, require_one_format
from ablate.runners.cli.resolve import open_grid
from ablate.runners.output import format_count, round_value, tell, write_frame, write_json, write_prose, write_table

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.published.tables import PublishedCell

_CLAIM_HEADINGS: Final = (
    *("table", "claim", "published", "here", "low", "high", "unit", "cell", "pairs", "p (Holm)", "word", "reason"),
)
_MOST_REASONS: Final = 4


@flag_group
class PublishedQuery:
    """Which published cells.

    Parameters
    ----------
    paper
        A paper, such as 003 or ssa; default all.
    table
        One of its tables, such as T1 or table1.
    metric
        A measurement, such as mse, or part of the paper's words for what it measured.
    """

    paper: str | None = None
    table: str | None = None
    metric: str | None = None


@flag_group
class ComparisonFlags:
    """Results to compare with.

    Parameters
    ----------
    compare
        Put what the papers claim of an operator beside what a grid of yours found.
    grid
        With --compare: the grid, when the campaign has several.
    campaign
        With --compare: the campaign directory; default the only one below campaigns/.
    everything
        With --compare: also the claims that cannot be compared, each with the reason.
    """

    compare: Flag = False
    grid: str | None = None
    campaign: Path | None = None
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False


def published(
    query: PublishedQuery = PublishedQuery(),
    *,
    results: ComparisonFlags = ComparisonFlags(),
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Show published tables, the values of one, or your results for the papers' claims.

    --json and --csv have all values.
    """
    from ablate.papers.matching.published_comparison import compare_published
    from ablate.papers.results.result_files import PAPERS
    from ablate.store.published.tables import chosen

    require_one_format(json=as_json, csv=as_csv)
    numbers = {name: number for number, name in PAPERS.items()}
    query = replace(query, paper=numbers.get(query.paper or "", query.paper))
    if results.compare:
        with open_grid(GridFlags(results.campaign, results.grid, as_json, as_csv)) as (store, name, warnings):
            claims = compare_published(store, name, **vars(query))
        if as_json or as_csv:
            write_frame("published-compare", claims, as_json=as_json, as_csv=as_csv, warnings=warnings)
        else:
            _write_claims(claims, everything=results.everything)
        return
    if results != ComparisonFlags():
        raise SpecError("--grid, --campaign or --all has no effect on published values alone; add --compare")
    cells = chosen(query.paper, query.table, query.metric)
    if as_json:
        write_json("published", [asdict(each) for each in cells])
    elif as_csv:
        write_frame("published", flat(cells), as_json=False, as_csv=True)
    elif query.table is None:
        _write_tables(cells)
    else:
        write_cells(cells)


def _by_table(cells: "Sequence[PublishedCell]") -> "dict[tuple[str, str], list[PublishedCell]]":
    groups: dict[tuple[str, str], list[PublishedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.paper, cell.paper_table), []).append(cell)
    return groups


def _write_tables(cells: "Sequence[PublishedCell]") -> None:
    rows = [
        (
            *table,
            len(members),
            some(list(dict.fromkeys(cell.operator for cell in members if cell.operator)), 2) or None,
            members[0].caption,
        )
        for table, members in _by_table(cells).items()
    ]
    write_table(("paper", "table", "cells", "operators", "about"), rows, spare=(3,), overflow="ellipsis")
    tell(
        f"{format_count(len(cells), 'cell')}; `ablate published 003 T1` shows those of a table, `ablate papers` lists "
        "our own grids of them, --compare puts your own results beside them"
    )


def write_cells(cells: "Sequence[PublishedCell]") -> None:
    """Write each table with its rows and columns as printed and its units, then the marks and the doubts."""
    for (paper, table), members in _by_table(cells).items():
        write_prose(f"{paper} {table}: {members[0].caption}")
        printed = {(cell.row_label, cell.column_label): cell.printed for cell in members}
        rows, columns = (list(dict.fromkeys(place[side] for place in printed)) for side in (0, 1))
        lines = [(row, *(printed.get((row, column), "") for column in columns)) for row in rows]
        write_table(["row", *columns], lines, overflow="blocks")
        _write_units(members)
    dashes = dict.fromkeys(f"{cell.printed}: {cell.mark}" for cell in cells if cell.mark and cell.printed == "-")
    marks = dict.fromkeys(cell.mark for cell in cells if cell.mark and cell.printed != "-")
    for line in (*dashes, *marks, *doubts(number for cell in cells for number in cell.notes)):
        write_prose(f"  {line}")
    tell("--json has also the operator, the measurement here, the binomial standard error and the doubts of each value")


def _write_units(cells: "Sequence[PublishedCell]") -> None:
    """Write each unit and direction of a table, with its columns, or its rows if those have one unit each."""
    units = [f"{cell.unit}{f', {cell.better} is better' if cell.better else ''}" for cell in cells]
    by_column = {(cell.column_label, words) for cell, words in zip(cells, units, strict=True)}
    are_columns = len(by_column) == len({cell.column_label for cell in cells})
    labels: dict[str, list[str]] = {}
    for cell, words in zip(cells, units, strict=True):
        labels.setdefault(words, []).append(cell.column_label if are_columns else cell.row_label)
    for words, having in labels.items():
        write_prose(words if len(labels) == 1 else f"{words}: {', '.join(dict.fromkeys(having))}")


def _write_claims(claims: "pl.DataFrame", *, everything: bool) -> None:
    """Write a line per judged claim, or per claim, then differences and counts."""
    import polars as pl

    judged, others = (claims.filter((pl.col("word") == "not comparable") == unequal) for unequal in (False, True))
    shown = claims if everything else judged
    if not shown.is_empty():
        write_table(_CLAIM_HEADINGS, [_claim_line(row) for row in shown.iter_rows(named=True)])
    differences = dict.fromkeys(
        f"{row['paper']} {row['paper_table']}: {row['differs'] or 'nothing is known to be different'}"
        for row in judged.iter_rows(named=True)
    )
    for line in (*differences, *doubts(number for numbers in judged["notes"] for number in numbers)):
        write_prose(f"  {line}")
    words = [f"{count} {word}" for word, count in judged["word"].value_counts(sort=True).rows()]
    counts = ", ".join([*words, f"{others.height} not comparable"])
    tell(f"of {format_count(claims.height, 'claim')}: {counts}")
    if not everything and not others.is_empty():
        reasons = others["reason"].value_counts(sort=True)
        for reason, count in reasons.rows()[:_MOST_REASONS]:
            tell(f"  {count}: {reason}")
        if reasons.height > _MOST_REASONS:
            tell(f"  and {reasons['count'][_MOST_REASONS:].sum()} for other reasons")
        tell("--all shows every claim and why it is not comparable; docs/published.md explains the words")


def doubts(numbers: Iterable[int]) -> list[str]:
    """List each inconsistency with one of these numbers as a sentence."""
    from ablate.store.published.tables import notes

    known = {note.note: note for note in notes()}
    return [f"doubt {n}: {known[n].paper}, {known[n].place}: {known[n].text}" for n in sorted(set(numbers))]


def flat(cells: "Sequence[PublishedCell]") -> "pl.DataFrame":
    """Return the fields of cells as columns; nested values become JSON text."""
    import polars as pl

    def plain(value: object) -> object:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | tuple) else value

    names = [field.name for field in fields(cells[0])]
    return pl.DataFrame({name: [plain(getattr(cell, name)) for cell in cells] for name in names})


def _claim_line(row: Mapping[str, object]) -> tuple[object, ...]:
    return (
        *(f"{row['paper']} {row['paper_table']}", row["claim"]),
        *(round_value(row[name]) for name in ("published", "own", "low", "high")),
        *(row["unit"], row["label"], row["pairs"], round_value(row["p_holm"]), row["word"], row["reason"]),
    )
