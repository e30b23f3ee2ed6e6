"""Queries of the rows of a table, as commands take them, too: `operator=SSA seed<3 diverged`."""

from typing import Final

import polars as pl

from ablate.grid.names import split_query
from ablate.store.analysis.query import Table, contains, fit

HELP: Final = "operator=SSA seed<3 state!=done cell~head; a word alone is searched in all columns"


def keep_rows(frame: pl.DataFrame, expression: str) -> pl.DataFrame:
    """Return the rows that fit a query.

    Fields are columns, by name or by the part before their "@". A missing text is the empty one. Words alone must all
    be in the text of some column, such as a label or a key. Raises as `fit`, and SpecError if a quote is open.
    """
    columns = {short: name for name in reversed(frame.columns) for short in (name, name.partition("@")[0])}

    def alone(word: str) -> tuple[str, pl.Expr]:
        return word, pl.any_horizontal(contains(frame, name, word) for name in frame.columns)

    return frame.filter(fit(Table(frame, columns, alone, missing="", must_exist=False), split_query(expression)))
