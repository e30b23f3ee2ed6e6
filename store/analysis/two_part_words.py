"""The rows of the table of how often and how well cells learned that say more than the verdicts."""

from typing import Final

import polars as pl

from ablate.store.analysis.two_part import TwoParts

COUNTS: Final = (("learned", "runs"), ("baseline_learned", "baseline_runs"))


def divided_rows(parts: TwoParts) -> tuple[pl.DataFrame, str]:
    """Return the rows in which a run of the cell or its baseline did not learn, and words for those left out."""
    rows = parts.rows.filter(pl.any_horizontal(pl.col(learned) != pl.col(runs) for learned, runs in COUNTS))
    left = "not shown are cells whose runs all learned, as their baseline's"
    return rows, left * (rows.height < parts.rows.height)
