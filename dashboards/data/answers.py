"""Answers at the top of pages: what a grid shows, in a sentence."""

from typing import Final

import polars as pl

from dashboards.data.formatting import change, count, in_odds, join_words, p_value
from dashboards.data.grid_context import GridContext
from store.analysis.verdicts import GridMeasure

CLAIMS: Final = ("better", "real, size unproven", "worse")
"""Verdicts that a grid is about, in the order in which they are told."""


def name_best(about: GridContext, measure: GridMeasure, found: pl.DataFrame, baseline: str) -> str:
    """The verdict that matters most, and its size: of the best decided variant, else the largest that is not shown."""
    ordered = found.sort("difference", descending=measure.better == "higher", nulls_last=True, maintain_order=True)
    known = ordered.drop_nulls("difference")
    if known.is_empty():
        return f"No difference from {baseline} is known yet."
    for verdict in CLAIMS:
        rows = known.filter(pl.col("verdict") == verdict)
        if not rows.is_empty():
            row = rows.row(-1 if verdict == "worse" else 0, named=True)
            return f"{about.look.names[row['cell']]} {_CLAIM[verdict].format(baseline)}: {size_of(row, measure)}."
    equal = known.filter(pl.col("verdict") == "equivalent").height
    if equal == found.height:
        return f"{'The variant is' if equal == 1 else f'All {equal} variants are'} equivalent to {baseline}."
    far = known.sort(pl.col("difference").abs(), descending=True, maintain_order=True).row(0, named=True)
    largest = f"the largest seen is {about.look.names[far['cell']]}, {size_of(far, measure)}"
    return f"No variant is shown to differ from {baseline}; {largest}."


_CLAIM: Final = {
    "better": "is better than {}",
    "worse": "is worse than {}",
    "real, size unproven": "differs from {}, by an amount not shown to matter",
}


def size_of(row: dict[str, object], measure: GridMeasure) -> str:
    """'mse −33 % (−53 % to −7.4 %)': a difference with the interval that decides, or its own."""
    low, high = row["corrected_low"], row["corrected_high"]
    ends = (low, high) if low is not None else (row["low"], row["high"])
    words = [change(end, measure.scale) for end in ends]  # type: ignore[arg-type]
    span = "" if ends[0] is None else f" ({words[0]} to {words[1]})"
    return f"{measure.name} {change(row['difference'], measure.scale)}{in_odds(measure.scale)}{span}"  # type: ignore[arg-type]


def rank_axes(effects: pl.DataFrame, measure: GridMeasure) -> str:
    """Which axes are shown to matter, that with the largest effect first, with what its best shown level does."""
    mains = effects.filter(order=1).sort(pl.col("effect").abs(), descending=True, maintain_order=True)
    shown = mains.filter(pl.col("verdict").is_in(CLAIMS))
    told = []
    for factor in shown["factor"].unique(maintain_order=True):
        best = shown.filter(factor=factor).sort("effect", descending=measure.better == "higher").row(0, named=True)
        size = f"{change(best['effect'], measure.scale)}{in_odds(measure.scale)}"
        told.append(f"{factor} ({best['level']} against {best['against']} {size}, p {p_value(best['p_holm'])})")
    known = set(shown["factor"])
    rest = [factor for factor in mains["factor"].unique(maintain_order=True) if factor not in known]
    lacking = f"{join_words(rest)} {'is' if len(rest) == 1 else 'are'} not shown to matter." if rest else ""
    axes = "Axes that matter, the largest first" if len(told) > 1 else "One axis matters"
    return " ".join(
        filter(None, (f"{axes}: {'; '.join(told)}." if told else "", f"{lacking[:1].upper()}{lacking[1:]}"))
    )


def count_words(verdicts: pl.DataFrame) -> str:
    """'29 variants: 3 better, 20 undecided'."""
    counts = dict(verdicts["verdict"].value_counts(sort=True).iter_rows())
    return f"{count(verdicts.height, 'variant')}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}"
