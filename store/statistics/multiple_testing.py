"""Adjustment of p values for the number of comparisons."""

import numpy as np

from store.statistics.paired_differences import Floats


def holm(p: Floats) -> Floats:
    """Holm-adjusted p (Holm 1979); the last axis is the family.

    NaN marks a planned comparison that cannot be tested. It stays NaN and counts in the size of the family, so the data
    cannot shrink the family.
    """
    m = p.shape[-1]
    filled = np.where(np.isnan(p), 1.0, p)
    order = np.argsort(filled, axis=-1, kind="stable")
    stepped = np.take_along_axis(filled, order, -1) * np.arange(m, 0, -1)
    adjusted = np.empty_like(filled)
    np.put_along_axis(adjusted, order, np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0), -1)
    return np.where(np.isnan(p), np.nan, adjusted)


def holm_levels(p: Floats, alpha: float) -> Floats:
    """Level at which Holm's step-down tests each p; the last axis is the family, and NaN is as in `holm`.

    It is alpha / m for the smallest of m, alpha / (m - 1) for the next, and so on. All that are not rejected have the
    level of the first of them. So p is at most its level exactly if its adjusted p is at most alpha.
    """
    m = p.shape[-1]
    filled = np.where(np.isnan(p), 1.0, p)
    rank = np.argsort(np.argsort(filled, axis=-1, kind="stable"), axis=-1, kind="stable")
    rejected = (holm(p) <= alpha).sum(-1, keepdims=True)
    return np.asarray(alpha / (m - np.minimum(rank, np.minimum(rejected, m - 1))), dtype=np.float64)
