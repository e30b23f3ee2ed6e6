"""Averages and intervals over seeds, against hand-computed ones."""

import math

import pytest

from ablate.dashboards.data.seed_averages import over_seeds, paired_change
from ablate.store import Store

T_2 = 4.302653  # two-sided 95 % quantile of t with two degrees of freedom


def rows(*pairs: tuple[str, str]) -> str:
    return "SELECT * FROM (VALUES " + ", ".join(f"('{key}', {value})" for key, value in pairs) + ") AS t(y, value)"


def one(store: Store, scale: str, *values: str) -> dict[str, float]:
    found = store.sql(over_seeds(rows(*(("a", value) for value in values)), ["y"], scale))
    return found.row(0, named=True)


@pytest.mark.parametrize(
    ("scale", "values", "mean", "high", "lost"),
    [
        ("log", ("1", "2", "4"), 2, 2 * math.exp(T_2 * math.log(2) / math.sqrt(3)), 0),
        ("linear", ("-1", "0", "1"), 0, T_2 / math.sqrt(3), 0),
        (
            "logit",
            ("0.2", "0.5", "0.8", "0", "1", "1.5"),
            0.5,
            1 / (1 + math.exp(-T_2 * math.log(4) / math.sqrt(3))),
            3,
        ),
    ],
)
def test_averages_and_intervals_are_those_of_the_scale(
    known: Store, scale: str, values: tuple[str, ...], mean: float, high: float, lost: int
) -> None:
    found = one(known, scale, *values)
    low = {"log": 4 / high, "linear": -high, "logit": 1 - high}[scale]
    assert [found[name] for name in ("value", "low", "high")] == pytest.approx([mean, low, high], rel=1e-5)
    assert (found["n"], found["lost"]) == (3, lost)


@pytest.mark.parametrize(("scale", "change"), [("linear", 0.3), ("log", math.log(1.6)), ("logit", math.log(4))])
def test_a_paired_change_is_in_units_of_the_scale_and_null_where_it_has_none(
    known: Store, scale: str, change: float
) -> None:
    pairs = "(VALUES (0.8::DOUBLE, 0.5::DOUBLE), (1.0, 0.0)) AS t(value, baseline_value)"
    found = known.sql(f"SELECT {paired_change(scale)} AS change FROM {pairs}")["change"].to_list()
    assert found == [pytest.approx(change), 1.0 if scale == "linear" else None]


def test_values_that_the_scale_cannot_take_are_counted_and_left_out(known: Store) -> None:
    values = ("1", "4", "0", "-3", "'nan'::DOUBLE", "'inf'::DOUBLE")
    log, linear = one(known, "log", *values), one(known, "linear", *values)
    assert (log["n"], log["lost"], log["value"]) == (2, 4, pytest.approx(2))
    assert (linear["n"], linear["lost"], linear["value"]) == (4, 2, pytest.approx(0.5))


def test_few_values_have_no_interval_and_ends_that_leave_the_doubles_do_not_fail(known: Store) -> None:
    single = one(known, "log", "3")
    assert (single["low"], single["value"]) == (None, pytest.approx(3))
    assert one(known, "log", "-3")["value"] is None
    found = one(known, "log", "1e-300", "1e300")
    assert found["low"] < 1e-300
    assert math.isfinite(found["high"])
