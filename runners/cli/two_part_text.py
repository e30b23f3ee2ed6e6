"""The table of how often, and how well, the cells of a grid learned."""

from typing import TYPE_CHECKING, Any

from ablate.grid.names import some
from ablate.runners.cli.cell_tables import difference_headings, format_difference, format_p
from ablate.runners.output import write_prose, write_table
from ablate.store.analysis.two_part_words import COUNTS, divided_rows

if TYPE_CHECKING:
    from ablate.store.analysis.two_part import TwoParts
    from ablate.store.analysis.verdicts import GridMeasure


def write_two_parts(two_parts: "TwoParts", measure: "GridMeasure") -> None:
    """Write the table, with what says that a run learned as its title."""
    level = f"{100 * (1 - measure.alpha):g} %"
    shown, left = divided_rows(two_parts)
    rows, rest = shown.rows(named=True), f"; {left}" if left else ""
    write_prose(
        f"some runs did not learn; those that did have {two_parts.learned}; half of alpha is for each part{rest}"
    )
    difference, interval, p, verdict = difference_headings(measure._asdict())
    headings = ["cell", "learned", f"{level} exact", "baseline", "p of shares (Holm)"]
    headings += ["pairs that learned", difference, interval, p, verdict]
    write_table(headings, [_cells(row, measure.scale) for row in rows], spare=(2, 7), labels=1)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row["reason"], []).append(row["label"])
    for reason, labels in reasons.items():
        write_prose(f"{'each' if len(labels) == len(rows) > 1 else some(labels, _MOST_NAMED)}: {reason}")


def _cells(row: dict[str, Any], scale: str) -> tuple[object, ...]:
    share = None if row["share_low"] is None else f"{100 * row['share_low']:.0f} to {100 * row['share_high']:.0f} %"
    ours, theirs = (f"{row[of]} of {row[runs]}" for of, runs in COUNTS)
    value = format_difference(row, row["difference"], scale)
    return row["label"], ours, share, theirs, format_p(row["share_p_holm"]), row["pairs"], *value


_MOST_NAMED = 4
