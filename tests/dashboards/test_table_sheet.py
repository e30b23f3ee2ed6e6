"""Tables of means: what has to be known of a value has a sign beside it and words under the table."""

from typing import Any

import polars as pl

from dashboards.figures.table import table_sheet
from dashboards.papers.columns import columns_of
from dashboards.papers.paper_tables import printed_table
from store.published.tables import notes

_PLAIN = {"mean": 1.0, "spread": 0.1, "n": 3, "planned": 3, "missing": None, "why": None, "best": False}
_EMPTY = {**_PLAIN, "mean": None, "spread": None, "n": 0}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    schema = {
        "mean": pl.Float64,
        "spread": pl.Float64,
        **dict.fromkeys(("missing", "why", "mark", "differs"), pl.String),
    }
    made = [{"row": f"r{i}", "column": "c", "printed": "1", **_PLAIN, **row} for i, row in enumerate(rows)]
    given = {name for row in made for name in row}
    return pl.DataFrame([{name: row.get(name) for name in given} for row in made], schema_overrides=schema)


def test_signs_stand_at_what_they_are_of_and_what_is_of_all_is_said_once() -> None:
    sheet = table_sheet(
        frame(
            {"printed": "-", "mark": "not applicable", "differs": "60M parameters, here 25k; 8 heads, here 2"},
            {"printed": "2", "notes": [1], "differs": "60M parameters, here 25k"},
            {"printed": "3", "differs": "60M parameters, here 25k; 4 heads, here 2"},
        )
    )
    (first,), (second,), (third,) = sheet.entries
    assert [each.printed_marks for each in (first, second, third)] == ["a", "b", ""]
    assert [each.marks for each in (first, second, third)] == ["c", "", "d"]
    assert list(sheet.legend) == [
        ("All own", "60M parameters, here 25k"),
        ("a", "the paper: not applicable"),
        ("b", f"{notes()[0].place}: {notes()[0].text}"),
        ("c", "8 heads, here 2"),
        ("d", "4 heads, here 2"),
    ]


def test_what_is_missing_and_what_lacks_seeds_is_seen_in_the_table() -> None:
    sheet = table_sheet(
        frame(
            {**_EMPTY, "missing": "failed", "why": "3 of 3 runs failed", "differs": "60M parameters, here 25k"},
            {**_EMPTY, "missing": "unmeasured", "why": "no cell of the grid is ssa"},
            {"n": 2, "note": "1 of 2 cells: first"},
            {},
        )
    )
    (failed,), (unmeasured,), (few,), (whole,) = sheet.entries
    assert (failed.words, failed.hint, unmeasured.words) == ("×", "3 of 3 runs failed", "–")
    assert (few.note, whole.note) == ("2 of 3 seeds; 1 of 2 cells: first", "")
    assert [sign for sign, _ in sheet.legend] == ["×", "–"]  # no value differs, none is unfinished


def test_more_than_26_remarks_have_signs_of_two_letters() -> None:
    sheet = table_sheet(frame(*({"differs": f"{i} heads, here 2"} for i in range(30))))
    assert [row[0].marks for row in sheet.entries][24:29] == ["y", "z", "aa", "ab", "ac"]


def test_headings_that_are_bare_numbers_have_their_quantity_in_the_corner() -> None:
    corners = {(paper, number): columns_of(printed_table(paper, number)) for paper, number in _TABLES}
    assert corners == _TABLES
    assert table_sheet(frame({}), corners["003", 1]).corner == "sigma_f"


_TABLES = {
    ("003", 1): "sigma_f",
    ("003", 5): "sigma_first",
    ("003", 6): "sigma_f",
    ("004", 1): "weight decay",
    ("004", 12): "alpha",
    ("004", 2): "",
    ("000", 1): "",
}
