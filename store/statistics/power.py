"""How many seeds a difference needs, and which difference the seeds at hand can find.

Power of the two-sided paired t test by the noncentral t distribution, with the observed standard deviation. From few
seeds that is rough: at 5 pairs the true need may well be four times as large, or half. The level is that of the hardest
Holm step, alpha over the size of the family.
"""

from typing import Final

import numpy as np
from scipy import special

from ablate.store.statistics.paired_differences import Floats
from ablate.store.statistics.verdict import MIN_PAIRS

TARGET_POWER: Final = 0.8
MAX_SEEDS: Final = 1_000_000


def power(difference: Floats, sd: Floats, n: Floats, *, alpha: float) -> Floats:
    """Chance that a two-sided t test at level alpha on n pairs finds a true `difference` of seeds with this `sd`."""
    freedom = np.where(n >= 2, n - 1, np.nan)
    centre = np.abs(difference) * np.sqrt(n) / sd
    critical = special.stdtrit(freedom, 1 - alpha / 2)
    return 1 - _cdf(critical, freedom, centre) + _cdf(-critical, freedom, centre)


def _cdf(t: Floats, freedom: Floats, centre: Floats) -> Floats:
    probability = special.nctdtr(freedom, centre, t)
    # scipy answers NaN for finite arguments when the probability is below about 1e-17: the mass is far above t
    return np.where(np.isnan(probability) & np.isfinite(freedom + centre), 0.0, probability)


def seeds_needed(difference: float | Floats, sd: Floats, *, alpha: float) -> Floats:
    """Smallest number of pairs (>= 3) whose power for `difference` reaches 80 %; shape of `sd`.

    NaN where the sd is zero or unknown, where the difference is zero, and beyond a million seeds.
    """
    sd = np.asarray(sd, dtype=np.float64)
    size = np.broadcast_to(np.abs(np.asarray(difference, dtype=np.float64)), sd.shape)
    usable = np.isfinite(sd) & (sd > 0) & (size > 0)
    size, spread = size[usable], sd[usable]
    low = np.full(size.shape, float(MIN_PAIRS - 1))  # not enough (or not allowed)
    high = np.full(size.shape, float(MAX_SEEDS))  # enough, if anything is
    reached = power(size, spread, high, alpha=alpha) >= TARGET_POWER
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        enough = power(size, spread, np.maximum(middle, MIN_PAIRS), alpha=alpha) >= TARGET_POWER
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    seeds = np.full(sd.shape, np.nan)
    seeds[usable] = np.where(reached, np.maximum(high, MIN_PAIRS), np.nan)
    return seeds


def detectable(sd: Floats, n: Floats, *, alpha: float) -> Floats:
    """Smallest difference that n pairs find with 80 % power; shape of `sd`; NaN below three pairs or without sd."""
    usable = np.isfinite(sd) & (sd > 0) & (n >= MIN_PAIRS)
    pairs, place = np.unique(np.where(usable, n, float(MIN_PAIRS)), return_inverse=True)  # many cells, few sizes
    one = np.ones_like(pairs)
    low, high = np.zeros_like(pairs), special.stdtrit(pairs - 1, 1 - alpha / 2) * 2 + 10  # in standard errors
    for _ in range(60):
        middle = (low + high) / 2
        enough = power(middle / np.sqrt(pairs), one, pairs, alpha=alpha) >= TARGET_POWER
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    high, pairs = high[place].reshape(usable.shape), pairs[place].reshape(usable.shape)
    return np.where(usable, high * np.where(usable, sd, 1.0) / np.sqrt(pairs), np.nan)
