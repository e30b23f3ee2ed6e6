"""Filter expressions keep the rows that plain Python keeps, and refuse what they cannot read in a sentence."""

import polars as pl
import pytest

from ablate.dashboards.data.row_filter import keep_rows
from ablate.dashboards.data.user_errors import Unknown
from ablate.grid.errors import SpecError
from ablate.grid.names import split_query

ROWS = [
    {"label": "SSA · head", "seed": 0, "mse@sigma_f=5": 0.5, "reason": None},
    {"label": "SSA · layer", "seed": 1, "mse@sigma_f=5": 0.25, "reason": "diverged"},
    {"label": "softmax", "seed": 2, "mse@sigma_f=5": None, "reason": "out of memory"},
]
TABLE = pl.DataFrame(ROWS)


@pytest.mark.parametrize(
    ("expression", "seeds"),
    [
        ("", [0, 1, 2]),
        ("seed=1", [1]),
        ("seed!=1", [0, 2]),
        ("seed>=1 label~ssa", [1]),
        ("mse<0.5", [1]),
        ("SSA", [0, 1]),
        ("diverged", [1]),
        ("reason='out of memory'", [2]),
        ("label='SSA · head'", [0]),
        ("reason!=diverged", [0, 2]),
    ],
)
def test_conditions_keep_what_fits_all_of_them(expression: str, seeds: list[int]) -> None:
    assert keep_rows(TABLE, expression)["seed"].to_list() == seeds


@pytest.mark.parametrize(
    ("expression", "said"),
    [("sed=1", "has no column 'sed'; it has label"), ("seed<x", "compares numbers"),
     ("label<x", "holds texts; use = != or ~")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(expression: str, said: str) -> None:
    with pytest.raises(Unknown, match=said):
        keep_rows(TABLE, expression)
    assert split_query(r"operator=a\b note='x y'") == [r"operator=a\b", "note=x y"]
    with pytest.raises(SpecError, match="is not closed"):
        keep_rows(TABLE, "'open")
