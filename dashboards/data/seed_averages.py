"""Averages and intervals over seeds, computed by the database.

On the log scale the average is the geometric mean and the interval is that of the mean of logarithms: t, two-sided,
95 %. On the logit scale both are of log odds. Values that the scale cannot take are left out and counted in `lost`.
"""

from collections.abc import Sequence
from typing import Final, Literal

from ablate.dashboards.data.formatting import in_odds

Scale = Literal["log", "linear", "logit"]

Band = Literal["interval", "spread", "range"]
"""`low` and `high`: a 95 % t interval, one standard deviation to each side, or the range."""

_LARGEST: Final = 700.0  # exp of more leaves the doubles


def over_seeds(source: str, keys: Sequence[str], scale: Scale, band: Band = "interval") -> str:
    """SQL for one row per `keys` of the query `source` (keys, value): keys, n, lost, value, low, high.

    `low` and `high` are null below two values, but for the range. The result is ordered by `keys`.
    """
    names = ", ".join(keys)
    half = {"interval": "q.q * sd / sqrt(n)", "spread": "sd"}.get(band)
    low, high = (f"centre - {half}", f"centre + {half}") if half else ("least", "greatest")
    return f"""
    WITH per_seed AS (SELECT {names}, {_to_units("value", scale)} AS scaled_ FROM ({source})),
    summed AS (
        SELECT {names}, count(scaled_) AS n, count(*) - count(scaled_) AS lost, avg(scaled_ ORDER BY scaled_) AS centre,
               CASE WHEN count(scaled_) > 1 THEN stddev_samp(scaled_ ORDER BY scaled_) END AS sd,
               min(scaled_) AS least, max(scaled_) AS greatest
        FROM per_seed GROUP BY {names}
    ),
    bounded AS (
        SELECT {names}, n, lost, centre, {low} AS low_, {high} AS high_
        FROM summed ASOF LEFT JOIN t_quantile q ON summed.n - 1 >= q.df
    )
    SELECT {names}, n, lost, {_back("centre", scale)} AS value, {_back("low_", scale)} AS low,
           {_back("high_", scale)} AS high
    FROM bounded ORDER BY {names}
    """


def paired_change(scale: Scale) -> str:
    """SQL for the change of a row of `v_pair` in units of the scale; null where it cannot take a value."""
    return f"{_to_units('value', scale)} - {_to_units('baseline_value', scale)}"


def _to_units(column: str, scale: Scale) -> str:
    kept = {"log": f"{column} > 0", "logit": f"{column} > 0 AND {column} < 1", "linear": "true"}[scale]
    units = {"log": f"ln({column})", "logit": f"ln({column} / (1 - {column}))", "linear": column}[scale]
    return f"CASE WHEN isfinite({column}) AND {kept} THEN {units} END"


def _back(y: str, scale: Scale) -> str:
    if scale == "linear":
        return y
    if scale == "logit":
        return f"CASE WHEN {y} < -{_LARGEST} THEN 0.0 ELSE 1 / (1 + exp(-({y}))) END"
    # not least() and greatest(): they skip nulls, so an interval that does not exist would get ends
    return f"exp(CASE WHEN {y} > {_LARGEST} THEN {_LARGEST} WHEN {y} < -{_LARGEST} THEN -{_LARGEST} ELSE {y} END)"


OF_UNITS: Final[dict[Scale, str]] = {"log": " of logarithms", "logit": " of log odds", "linear": ""}
"""The units of a scale, behind a word such as "difference"."""
_IN_BRACKETS: Final = {scale: f" ({words.strip()})" if words else "" for scale, words in OF_UNITS.items()}


def average_words(scale: Scale) -> str:
    """Name the average that lines show."""
    return {"log": "geometric mean", "logit": "mean of log odds", "linear": "mean"}[scale]


def interval_words(scale: Scale, alpha: float = 0.05) -> str:
    """Name the interval that bars and bands show."""
    return f"{(1 - alpha) * 100:g} % t interval over seeds{_IN_BRACKETS[scale]}"


def band_words(band: Band, scale: Scale) -> str:
    """Explain bands of a kind."""
    spread = f"one standard deviation over seeds{_IN_BRACKETS[scale]} to each side"
    return {"interval": interval_words(scale), "spread": spread, "range": "least and greatest over seeds"}[band]


def rope_words(rope: float, scale: Scale, unit: str) -> str:
    """Write the margin that counts as equal: '10 %', '10 % in odds', '0.005 nats'."""
    if scale == "linear":
        return f"{rope:g} {unit}".strip()
    return f"{rope * 100:g} %{in_odds(scale)}"
