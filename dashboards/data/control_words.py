"""Variants less each of their controls, in words, for the report and the page Compare."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from ablate.dashboards.data.formatting import change, p_value
from ablate.dashboards.data.grid_context import GridContext
from ablate.store.analysis.control_tests import beside_control
from ablate.store.analysis.verdicts import GridMeasure

CONTROLS: Final = "Simpler explanations"


def describe_controls(measure: GridMeasure) -> str:
    """Explain the rows."""
    return (
        f"A control has the simplest part of a variant that could explain its {measure.name}. Differences: the variant "
        f"less the control, paired by seed, {100 * (1 - measure.alpha):g} % t interval of each alone; the least sure "
        "come first. A variant is beyond a control if it differs from it, by any amount, in the direction in which it "
        "differs from its baseline; the check control passes if it is beyond every one."
    )


def control_words(context: GridContext, measure: GridMeasure, rows: pl.DataFrame, cells: Sequence[str]) -> pl.DataFrame:
    """Write the rows of `control_rows` of some cells, a row for each variant and control."""
    told = []
    for row in rows.filter(pl.col("cell").is_in(cells)).to_dicts():
        low, high = (change(row[end], measure.scale) for end in ("low", "high"))
        told.append(
            {
                "variant": context.appearance.names[row["cell"]],
                "control": row["control_label"],
                "difference": change(row["difference"], measure.scale),
                "than the control": beside_control(row, measure),
                "interval": "–" if row["low"] is None else f"{low} to {high}",
                "p": p_value(row["p"]),
                "pairs": row["pairs"],
            }
        )
    return pl.DataFrame(told)
