"""Failures are outcomes: the failure rate of every cell with its interval, and whether it differs from the baseline."""

import math
from typing import Final

import numpy as np
import polars as pl
from scipy import special

from store.statistics.arms import Arm, Baseline, arms, match_arms
from store.statistics.multiple_testing import holm
from store.statistics.paired_differences import or_null

SCHEMA: Final = {
    "cell": pl.String,
    "label": pl.String,
    "operator": pl.String,
    "ended": pl.Int64,
    "failed": pl.Int64,
    "rate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
}
"""Columns of `failures`, in order."""


def failures(values: pl.DataFrame, *, baseline: Baseline, alpha: float = 0.05) -> pl.DataFrame:
    """One row per cell, baseline included, in the order of `values` (columns as for `compare`).

    `ended` runs finished or failed; a run that finished with NaN or infinity counts as failed. `low`, `high` is the
    Wilson interval of the rate, `p` Fisher's exact test against the baseline (null for a baseline and where nothing
    ended), `p_holm` adjusts it over the cells. Raises as `compare` does.
    """
    found = arms(values)
    counts = [_counts(arm) for arm in found.values()]
    bases = {arm.cell: _counts(base) for arm, base in match_arms(found, baseline)}
    raw = [_fisher_or_nan(count, bases.get(cell, (0, 0))) for cell, count in zip(found, counts, strict=True)]
    others = [i for i, cell in enumerate(found) if cell in bases]
    adjusted = np.full(len(raw), np.nan)
    adjusted[others] = holm(np.array([raw[i] for i in others], dtype=np.float64))
    rows = []
    for i, (arm, (ended, failed)) in enumerate(zip(found.values(), counts, strict=True)):
        low, high = wilson_interval(failed, ended, alpha)
        rate = failed / ended if ended else math.nan
        numbers = (rate, low, high, raw[i] if i in others else math.nan, adjusted[i])
        rows.append((arm.cell, arm.label, arm.operator, ended, failed, *map(or_null, numbers)))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _counts(arm: Arm) -> tuple[int, int]:
    failed = sum(run.failed for run in arm.runs.values())
    return failed + sum(run.status == "ok" and not run.failed for run in arm.runs.values()), failed


def _fisher_or_nan(cell: tuple[int, int], base: tuple[int, int]) -> float:
    (ended, failed), (base_ended, base_failed) = cell, base
    if not ended or not base_ended:
        return math.nan
    return fisher_p(failed, ended, base_failed, base_ended)


def wilson_interval(events: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Score interval of a proportion (Wilson 1927): sensible at 0 and n of n; NaN for n = 0."""
    if n == 0:
        return math.nan, math.nan
    z = float(special.ndtri(1 - alpha / 2))
    centre = (events + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(events * (n - events) / n + z * z / 4)
    return (0.0 if events == 0 else centre - half), (1.0 if events == n else centre + half)


def fisher_p(events: int, n: int, other_events: int, other_n: int) -> float:
    """Two-sided exact test that two proportions are equal (Fisher): all tables as unlikely as this one or more."""
    total, events_in_all = n + other_n, events + other_events
    every = range(max(0, events_in_all - other_n), min(n, events_in_all) + 1)
    ways = {k: math.comb(n, k) * math.comb(other_n, events_in_all - k) for k in every}
    return sum(count for count in ways.values() if count <= ways[events]) / math.comb(total, events_in_all)
