"""Answers at the top of pages: what a grid shows, in a sentence."""

from typing import Final

import polars as pl

from dashboards.data.formatting import change, count, in_odds, join_words, p_value
from dashboards.data.grid_context import GridContext
from store.analysis.verdicts import GridMeasure
from store.statistics import Factorial

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


def rank_axes(found: Factorial, effects: pl.DataFrame, measure: GridMeasure) -> str:
    """Which axes are shown to matter, that with the largest effect first, with the best level of each."""
    tests = found.terms.filter(pl.col("order") == 1).drop_nulls("p_holm")
    sizes = effects.group_by("factor").agg(pl.col("effect").abs().max().alias("size"))
    tests = tests.join(sizes, left_on="term", right_on="factor", how="left", maintain_order="left")
    tests = tests.sort("size", descending=True, nulls_last=True, maintain_order=True)
    shown = tests.filter(pl.col("p_holm") <= measure.alpha)
    rest = [name for name in tests["term"] if name not in set(shown["term"])]
    lacking = f"{join_words(rest)} {'is' if len(rest) == 1 else 'are'} not shown to matter" if rest else ""
    if shown.is_empty():
        return f"{lacking[:1].upper()}{lacking[1:]}." if lacking else ""
    told = []
    for term, p in shown.select("term", "p_holm").iter_rows():
        levels = effects.filter(pl.col("factor") == term).drop_nulls("effect")
        if levels.is_empty():
            continue
        best = levels.sort("effect", descending=measure.better == "higher").row(0, named=True)
        change_of = f"{change(best['effect'], measure.scale)}{in_odds(measure.scale)}"
        told.append(f"{term} ({best['level']} is best, {change_of}, p {p_value(p)})")
    if not told:
        return ""
    axes = "Axes that matter, the largest first" if len(told) > 1 else "One axis matters"
    return f"{axes}: {'; '.join(told)}{'. ' if lacking else ''}{lacking[:1].upper()}{lacking[1:]}."


def count_words(verdicts: pl.DataFrame) -> str:
    """'29 variants: 3 better, 20 undecided'."""
    counts = dict(verdicts["verdict"].value_counts(sort=True).iter_rows())
    return f"{count(verdicts.height, 'variant')}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}"
