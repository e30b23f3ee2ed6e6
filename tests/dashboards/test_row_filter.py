"""Filter expressions keep the rows that plain Python keeps, and refuse what they cannot read in a sentence."""

import polars as pl
import pytest

from ablate.dashboards.data.row_filter import keep_rows
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.grid.errors import AblateError, NotFoundError, SpecError
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
        ("reason=", [0]),
        ("seed=0 seed=2", [0, 2]),
        ("seed!=0 seed!=2", [1]),
        ("label=SOFTMAX", [2]),
        ("mse@sigma_f=5<0.5", [1]),
    ],
)
def test_conditions_keep_what_fits_all_of_them(expression: str, seeds: list[int]) -> None:
    assert keep_rows(TABLE, expression)["seed"].to_list() == seeds


@pytest.mark.parametrize(
    ("expression", "kind"),
    [("sed=1", NotFoundError), ("seed<x", SpecError), ("seed=x", SpecError), ("label<x", SpecError),
     ("'open", SpecError)],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(expression: str, kind: type[AblateError]) -> None:
    with pytest.raises(kind):
        keep_rows(TABLE, expression)


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r"\?$") as refused:
        keep_rows(TABLE, "resaon=diverged")
    assert "'reason'" in str(refused.value)


def test_words_are_split_as_a_shell_does() -> None:
    assert split_query(r"operator=a\b note='x y'") == [r"operator=a\b", "note=x y"]


def test_a_refusal_that_ends_with_a_question_has_no_full_stop() -> None:
    _, said = catch_user_error(lambda: keep_rows(TABLE, "resaon=diverged"))
    assert said is not None
    assert said.endswith("'reason'?")
