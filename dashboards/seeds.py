"""Averages and intervals over seeds, computed by the database.

On the log scale the average is the geometric mean and the interval is that of the mean of logarithms: t, two-sided,
95 %. Values that the scale cannot take (NaN, infinite, on the log scale also zero and negative ones) are left out and
counted in `lost`.
"""

from collections.abc import Sequence
from typing import Final, Literal

Scale = Literal["log", "linear"]

_LARGEST: Final = 700.0  # exp of more leaves the doubles


def over_seeds(source: str, keys: Sequence[str], scale: Scale) -> str:
    """SQL for one row per `keys` of the query `source` (keys, value): keys, n, lost, value, low, high.

    `low` and `high` are null below two values. The result is ordered by `keys`.
    """
    usable = "isfinite(value) AND value > 0" if scale == "log" else "isfinite(value)"
    kept = f"CASE WHEN {usable} THEN value END"
    scaled = f"ln({kept})" if scale == "log" else kept
    names = ", ".join(keys)
    return f"""
    WITH per_seed AS (SELECT {names}, {scaled} AS scaled_ FROM ({source})),
    summed AS (
        SELECT {names}, count(scaled_) AS n, count(*) - count(scaled_) AS lost, avg(scaled_) AS centre,
               CASE WHEN count(scaled_) > 1 THEN stddev_samp(scaled_) END AS sd
        FROM per_seed GROUP BY {names}
    ),
    bounded AS (
        SELECT {names}, n, lost, centre, q.q * sd / sqrt(n) AS half
        FROM summed ASOF LEFT JOIN t_quantile q ON summed.n - 1 >= q.df
    )
    SELECT {names}, n, lost, {_back("centre", scale)} AS value, {_back("centre - half", scale)} AS low,
           {_back("centre + half", scale)} AS high
    FROM bounded ORDER BY {names}
    """


def _back(y: str, scale: Scale) -> str:
    if scale == "linear":
        return y
    # not least() and greatest(): they skip nulls, so an interval that does not exist would get ends
    return f"exp(CASE WHEN {y} > {_LARGEST} THEN {_LARGEST} WHEN {y} < -{_LARGEST} THEN -{_LARGEST} ELSE {y} END)"


def average_words(scale: Scale) -> str:
    """What the lines of a figure are."""
    return "geometric mean" if scale == "log" else "mean"


def interval_words(scale: Scale) -> str:
    """What bars and bands are."""
    return "95 % t interval over seeds" + (" (of logarithms)" if scale == "log" else "")
