"""Values that no frame can hold are refused; all others arrive unchanged."""

import datetime as dt

import polars as pl
import pytest

from ablate.grid.errors import SpecError
from ablate.store.store import Store

BEYOND = (
    "'infinity'::date",
    "'-infinity'::timestamp",
    "'-infinity'::timestamp_ms",
    "'infinity'::timestamp_ns",
    "'0044-01-01 (BC)'::date",
    "to_timestamp(1.7e12)",
)


@pytest.mark.parametrize("value", BEYOND)
def test_a_date_that_python_does_not_have_is_refused(value: str, reading: Store) -> None:
    with pytest.raises(SpecError, match="the column 'far' has a date outside the years 1 to 9999; cast it"):
        reading.sql(f"SELECT {value} AS far")


def test_the_first_and_the_last_date_of_python_arrive(reading: Store) -> None:
    found = reading.sql(
        "SELECT '0001-01-01'::date, '9999-12-31'::date, '0001-01-01'::timestamp, "
        "'9999-12-31 23:59:59.999999'::timestamp, NULL::date, '2262-04-11'::timestamp_ns"
    )
    last = dt.datetime(2262, 4, 11)
    assert found.rows() == [(dt.date.min, dt.date.max, dt.datetime.min, dt.datetime.max, None, last)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("'1010'::bit", "BIT"),
        ("1::bignum", "BIGNUM"),
        ("'12:00:00+02'::timetz", "TIME WITH TIME ZONE"),
        ("'a'::variant", "VARIANT"),
        ("INTERVAL 1 DAY", "INTERVAL"),
        ("[{'a': '1'::bit}]", "BIT"),
        ("'2026-11-22'::timestamp_s", "TIMESTAMP_S"),
        ("{'a': [NULL::date]}", "DATE"),
    ],
)
def test_a_type_whose_values_would_be_others_is_refused(value: str, kind: str, reading: Store) -> None:
    with pytest.raises(SpecError, match=rf"the column 'x' is of the type .*{kind}.*cast it"):
        reading.sql(f"SELECT {value} AS x")
    assert reading.sql(f"SELECT ({value})::VARCHAR AS x").schema == {"x": pl.String}


def test_a_name_is_no_type(reading: Store) -> None:
    found = reading.sql("SELECT {'BIT': 1} AS a, 'UNION'::ENUM('UNION', 'BIT')::VARCHAR AS b")
    assert found.rows() == [({"BIT": 1}, "UNION")]
    assert reading.sql("SELECT 'UNION'::ENUM('UNION') AS b")["b"].to_list() == ["UNION"]
