"""Tables of means: what has to be known of a value has a sign beside it and words under the table."""

from typing import Any

import polars as pl

from ablate.dashboards.figures.table import table_sheet
from ablate.store.published.tables import notes

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
