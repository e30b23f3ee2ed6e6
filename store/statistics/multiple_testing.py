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
