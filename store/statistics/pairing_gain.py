"""The gain of pairing by seed in a table: variance that pairs have in common is not in their differences."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from ablate.store.statistics.arms import Baseline, Pairing, arms, match_arms, pair
from ablate.store.statistics.paired_differences import pairing_correlation
from ablate.store.statistics.scales import Scale


class PairingGain(NamedTuple):
    """Over the paired comparisons of a table."""

    removed: float
    """Share of the variance of differences of unrelated runs that pairing removed; negative if it added some."""
    correlation: float
    """Median correlation of a cell and its baseline over seeds; NaN if one of each two is constant."""
    comparisons: int


def pairing_gain(values: pl.DataFrame, *, baseline: Baseline, scale: Scale) -> PairingGain | None:
    """Return the gain of the comparisons that have a paired test; None without any. `values` are as for `compare`."""
    pairings: Sequence[Pairing] = [pair(arm, base, scale) for arm, base in match_arms(arms(values), baseline)]
    paired = [each for each in pairings if each.problem is None and each.method == "paired t"]
    apart = sum(float(side.var(ddof=1)) for each in paired for side in (each.ours, each.theirs))
    if not apart:
        return None
    left = sum(float(each.differences.var(ddof=1)) for each in paired)
    known = [r for each in paired if np.isfinite(r := pairing_correlation(each.ours, each.theirs))]
    return PairingGain(1 - left / apart, float(np.median(known)) if known else np.nan, len(paired))
