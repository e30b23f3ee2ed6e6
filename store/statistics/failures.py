"""Failures are outcomes: the failure rate of every cell with its interval, and whether it differs from the baseline."""

import math
from typing import Any, Final

import numpy as np
import polars as pl
from scipy import special

from ablate.store.state import ENDED
from ablate.store.statistics.arms import Baseline, arms, match_arms
from ablate.store.statistics.paired_differences import or_null
from ablate.store.statistics.verdict import holm

SCHEMA: Final[dict[str, Any]] = {
    **dict.fromkeys(("cell", "label", "operator"), pl.String),
    **dict.fromkeys(("ended", "failed", "not_finite"), pl.Int64),
    **dict.fromkeys(("rate", "low", "high", "p", "p_holm"), pl.Float64),
}


def failures(values: pl.DataFrame, *, baseline: Baseline, alpha: float = 0.05) -> pl.DataFrame:
    """One row per cell, baseline included, in the order of `values` (columns as for `compare`).

    `ended` runs finished or failed. `failed` counts those whose attempt ended as failed, and `not_finite` finished ones
    whose measure is NaN or infinite. `rate` is the share that failed, `low` to `high` its Wilson interval. `p` is
    Fisher's exact test against the baseline (null for a baseline and where nothing ended), and `p_holm` adjusts it over
    the cells. Raises as `compare` does.
    """
    cells = arms(values)
    ends = {cell: [run for run in arm.runs.values() if run.state in ENDED] for cell, arm in cells.items()}
    counts = {cell: (len(runs), len(cells[cell].ended_as("failed"))) for cell, runs in ends.items()}
    bases = {arm.cell: counts[base.cell] for arm, base in match_arms(cells, baseline)}
    raw = {cell: fisher_p(*counts[cell][::-1], *base[::-1]) for cell, base in bases.items()}
    adjusted = dict(zip(raw, holm(np.array(list(raw.values()), dtype=np.float64)).tolist(), strict=True))
    rows = []
    for cell, arm in cells.items():
        n, failed = counts[cell]
        rate = failed / n if n else math.nan
        numbers = (rate, *wilson_interval(failed, n, alpha), raw.get(cell, math.nan), adjusted.get(cell, math.nan))
        infinite = len(arm.ended_as("not finite"))
        rows.append((cell, arm.label, arm.operator, n, failed, infinite, *map(or_null, numbers)))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def wilson_interval(events: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Score interval of a proportion (Wilson 1927): sensible at 0 and n of n; NaN for n = 0."""
    if n == 0:
        return math.nan, math.nan
    z = float(special.ndtri(1 - alpha / 2))
    centre = (events + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(events * (n - events) / n + z * z / 4)
    return (0.0 if events == 0 else centre - half), (1.0 if events == n else centre + half)


def fisher_p(events: int, n: int, other_events: int, other_n: int) -> float:
    """Two-sided exact test that two proportions are equal (Fisher); NaN if one of the groups is empty."""
    if not n or not other_n:
        return math.nan
    total, events_in_all = n + other_n, events + other_events
    every = range(max(0, events_in_all - other_n), min(n, events_in_all) + 1)
    ways = {k: math.comb(n, k) * math.comb(other_n, events_in_all - k) for k in every}
    return sum(count for count in ways.values() if count <= ways[events]) / math.comb(total, events_in_all)
