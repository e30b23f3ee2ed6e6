"""The noise floor of a grid: the smallest difference from its baseline that so many seeds would find."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ablate.store.analysis.verdicts import compared_runs, measure_of
from ablate.store.statistics import MIN_PAIRS, Scale, detectable
from ablate.store.statistics.arms import arms, match_arms, pair
from ablate.store.statistics.paired_differences import or_null
from ablate.store.statistics.scales import misfit
from ablate.store.store import Store

SEEDS: Final = (3, 5, 8, 10, 20, 50)  # beside those that are planned


class NoiseFloor(NamedTuple):
    """Smallest visible differences for a spread over seeds, with 80 % power in the hardest step of Holm's procedure."""

    frame: pl.DataFrame
    """seeds; smallest (median over the comparisons), low and high (their minimum and maximum).

    The unit is that of the scale: log ratios, log odds ratios, or plain differences. Null if no spread is known."""
    planned: int
    comparisons: int  # comparisons whose spread is known
    family: int
    scale: Scale
    unknown: Mapping[str, int]  # why the spread of the others is not known, and of how many


def noise_floor(store: Store, grid: str) -> NoiseFloor:
    """By numbers of paired seeds the difference that they find in four of five repetitions. Raises as `verdicts`."""
    by = measure_of(store, grid, None)
    compared = compared_runs(store, grid, by)
    matched = match_arms(arms(compared.values), compared.baseline)
    pairings = [pair(arm, base, by.scale) for arm, base in matched]
    known, unknown = [], Counter[str]()
    for each in pairings:
        if each.shared < MIN_PAIRS:
            unknown[f"fewer than {MIN_PAIRS} finished seeds in common with the baseline"] += 1
        elif not np.isfinite(each.differences).all():
            unknown[misfit(by.scale)] += 1
        elif not each.spread:
            unknown["the same difference on every seed"] += 1
        else:
            known.append(each)
    sd = np.array([float(each.summary.sd) for each in known])
    planned = len(store.grid(grid)["seeds"])
    alpha = by.alpha / max(len(pairings), 1)
    rows = []
    for n in sorted({*SEEDS, planned}):
        ends = sd * detectable(np.ones(1), np.array([float(n)]), alpha=alpha)  # it grows with the spread
        usable = ends[np.isfinite(ends)]
        three = (np.median(usable), usable.min(), usable.max()) if usable.size else (np.nan,) * 3
        rows.append((n, *map(or_null, three)))
    schema = {"seeds": pl.Int64, **dict.fromkeys(("smallest", "low", "high"), pl.Float64)}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return NoiseFloor(frame, planned, len(known), len(pairings), by.scale, unknown)
