"""Partial omega squared: how much of the variance that is left by everything else a term explains.

    omega squared = df (F - 1) / (df (F - 1) + N)

The point value is nearly unbiased, so it is below zero about half of the time when the term does nothing; it is not cut
off there. The interval inverts the noncentral F distribution at 1 - 2 alpha (90 % at alpha = 0.05), so that it excludes
zero exactly where the F test rejects at alpha (Steiger 2004).
"""

import numpy as np
from scipy import special

from store.statistics.paired_differences import Floats

_LARGEST: float = 1e6
"""F beyond this is treated as this: the share is 1 then, and the noncentral distribution loses its digits."""


def partial_omega_squared(f: Floats, freedom: Floats, runs: int) -> Floats:
    """Bias-corrected share of variance, the shape of `f`; may be negative."""
    surplus = freedom * (f - 1)
    return np.asarray(surplus / (surplus + runs))


def omega_interval(
    f: Floats, freedom: Floats, error_freedom: int, runs: int, alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """Interval of level 1 - 2 alpha for the share of variance; arrays of the shape of `f`."""
    low, high = (_noncentrality(f, freedom, error_freedom, level) for level in (1 - alpha, alpha))
    return low / (low + runs), high / (high + runs)


def _noncentrality(f: Floats, freedom: Floats, error_freedom: int, level: float) -> Floats:
    """The noncentrality at which F is below `f` with probability `level`; 0 where even none exceeds it."""
    f = np.minimum(f, _LARGEST)
    low, high = np.zeros_like(f), 20 * freedom * (f + 1) + 50
    for _ in range(80):
        middle = (low + high) / 2
        above = special.ncfdtr(freedom, error_freedom, middle, f) >= level
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    exceeds = special.fdtr(freedom, error_freedom, f) > level
    return np.where(np.isnan(f), np.nan, np.where(exceeds, low, 0.0))
