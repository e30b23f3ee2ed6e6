"""How often and how well the cells of a grid learned, in words, for the report and the page Compare."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from ablate.dashboards.data.formatting import capitalise, change, p_value
from ablate.dashboards.data.grid_context import GridContext
from ablate.grid.names import some
from ablate.store.analysis.two_part import TwoParts
from ablate.store.analysis.two_part_words import COUNTS, divided_rows
from ablate.store.analysis.verdicts import GridMeasure

TITLE: Final = "How often and how well runs learn"
_ARMS: Final = (("baseline", COUNTS[1]), ("cell", COUNTS[0]))


def describe_parts(parts: TwoParts, measure: GridMeasure) -> str:
    """Say which runs learned, and what the table compares."""
    left = divided_rows(parts)[1]
    return (
        f"Some runs did not learn; those that did have {parts.learned}. Half of alpha is for how often a variant "
        f"learns, with exact intervals of {100 * (1 - measure.alpha):g} %, half for how well, over the pairs in which "
        f"both learned.{left and f' {capitalise(left)}.'}"
    )


def two_part_rows(context: GridContext, measure: GridMeasure, parts: TwoParts) -> pl.DataFrame:
    """Write a row of words for each comparison in which some run did not learn."""
    return pl.DataFrame([_words(context, measure, row) for row in divided_rows(parts)[0].iter_rows(named=True)])


def tell_learned(context: GridContext, parts: TwoParts | None) -> str:
    """Name the cells and baselines of which some runs did not learn; nothing where only the noise divides runs."""
    if parts is None or parts.source == "groups":
        return ""
    arms = {row[key]: (row[part], row[of]) for key, (part, of) in _ARMS for row in parts.rows.rows(named=True)}
    told = [f"{context.appearance.names[key]} in {part} of {of}" for key, (part, of) in arms.items() if part < of]
    return f"Not every run learned: {some(told, 4)}. Learned means {parts.learned}; Compare has the tests."


def _words(context: GridContext, measure: GridMeasure, row: Mapping[str, Any]) -> dict[str, str | int]:
    share = "–" if row["share_low"] is None else f"{100 * row['share_low']:.0f} to {100 * row['share_high']:.0f} %"
    ends = "" if row["low"] is None else " to ".join(change(row[end], measure.scale) for end in ("low", "high"))
    ours, theirs = (f"{row[part]} of {row[of]}" for part, of in COUNTS)
    return {
        "variant": context.appearance.names[row["cell"]],
        "learned": ours,
        "exact interval": share,
        "baseline": theirs,
        "p of shares (Holm)": p_value(row["share_p_holm"]),
        "pairs that learned": row["pairs"],
        "difference": f"{change(row['difference'], measure.scale)}{ends and f' ({ends})'}",
        "verdict": row["verdict"],
        "because": row["reason"],
    }
