"""Compare one's own values with the printed ones: distance, and whether differences have the same sign.

The words are those of `store.analysis.published_comparison`, per claim of the table and cell of the grid in its place.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import polars as pl

from dashboards.papers.paper_tables import Beside
from store.published.tables import PublishedCell

Band = Literal["inside", "above", "below"]
"""Where a printed value lies: in the interval of one's own mean, or on which side of it."""

NOT_COMPARED: Final = "not compared: the paper contradicts itself here"


def compare_with_printed(data: pl.DataFrame, found: Sequence[Beside], claims: pl.DataFrame) -> pl.DataFrame:
    """Add to the frame of `found` how its values compare with the printed ones.

    Args:
        data: of `printed.frame`.
        found: what it was made of.
        claims: of `compare_published`, of the same table.

    Returns:
        difference (own less printed; their log ratio on the log scale), band (null without an interval) and word (of
        the claim that the cell makes, where this own cell was judged beside it). All null where the paper contradicts
        itself, and then `note` says so.
    """
    words = _words(claims)
    rows: list[tuple[float | None, str | None, str | None, str | None]] = []
    for each, row in zip(found, data.iter_rows(named=True), strict=True):
        if each.cell.unusable:
            note = None if row["mean"] is None else "; ".join(filter(None, (NOT_COMPARED, row["note"])))
            rows.append((None, None, None, note))
        else:
            place = (each.cell.paper_table, each.cell.row_label, each.cell.column_label, row["cell"], row["point"])
            rows.append((_difference(each.cell, row["mean"]), _band(each.cell, row), words.get(place), row["note"]))
    more = pl.DataFrame(rows, _SCHEMA, orient="row")
    return data.drop("note").with_columns(more)


def _difference(cell: PublishedCell, mean: float | None) -> float | None:
    if cell.value is None or mean is None:
        return None
    if cell.scale != "log":
        return mean - cell.value
    return math.log(mean / cell.value) if cell.value > 0 and mean > 0 else None


def _band(cell: PublishedCell, row: Mapping[str, Any]) -> Band | None:
    if cell.value is None or row["low"] is None:
        return None
    return "above" if cell.value > row["high"] else "below" if cell.value < row["low"] else "inside"


def _words(claims: pl.DataFrame) -> dict[tuple[Any, ...], str]:
    """By printed cell, label of one's own cell and point; None where several baselines disagree."""
    told = claims.filter(pl.col("word") != "not comparable").select(
        "paper_table", "row_label", "column_label", "label", "point", "word"
    )
    found: dict[tuple[Any, ...], set[str]] = {}
    for *place, word in told.iter_rows():
        found.setdefault(tuple(place), set()).add(word)
    return {place: next(iter(words)) if len(words) == 1 else _SEVERAL for place, words in found.items()}


_SEVERAL: Final = "differs between baselines, see Claims"
_SCHEMA: Final = {"difference": pl.Float64, **dict.fromkeys(("band", "word", "note"), pl.String)}
