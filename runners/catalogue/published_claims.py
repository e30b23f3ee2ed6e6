"""What the papers claim beside what a grid found, in words."""

from collections.abc import Mapping

import polars as pl

from runners.catalogue.published_cells import doubts
from runners.output import counted, say, write, write_table

_HEADINGS = ("table", "claim", "published", "here", "low", "high", "of", "cell", "pairs", "p (Holm)", "word", "because")
_REASONS = 4
"""Reasons against a comparison that are shown with their counts."""


def write_claims(found: pl.DataFrame, *, everything: bool) -> None:
    """A line per claim that was judged, or per claim; then what is not the same, then counts."""
    judged, others = (found.filter((pl.col("word") == "not comparable") == without) for without in (False, True))
    shown = found if everything else judged
    if not shown.is_empty():
        write_table(_HEADINGS, [_line(row) for row in shown.iter_rows(named=True)])
    for told in dict.fromkeys(_apart(row) for row in judged.iter_rows(named=True)):
        write(f"  {told}")
    for told in doubts(number for numbers in judged["notes"] for number in numbers):
        write(f"  {told}")
    words = [f"{n} {word}" for word, n in judged["word"].value_counts(sort=True).rows()]
    counts = ", ".join([*words, f"{others.height} not comparable"])
    say(f"ablate: of {counted(found.height, 'claim')}: {counts}")
    if not everything and not others.is_empty():
        for because, n in others["because"].value_counts(sort=True).rows()[:_REASONS]:
            say(f"ablate:   {n}: {because}")
        say("ablate: --all shows every claim and why it is not comparable; docs/published.md says what the words mean")


def _line(row: Mapping[str, object]) -> tuple[object, ...]:
    return (
        *(f"{row['paper']} {row['paper_table']}", row["claim"]),
        *(_short(row[name]) for name in ("published", "own", "low", "high")),
        *(row["unit"], row["label"], row["pairs"], _short(row["p_holm"]), row["word"], row["because"]),
    )


def _short(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _apart(row: Mapping[str, object]) -> str:
    return f"{row['paper']} {row['paper_table']}: {row['differs'] or 'nothing is known to be different'}"
