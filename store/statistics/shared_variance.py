"""The guarded variance of a table: comparisons share degrees of freedom, and none has less than its own spread.

The moderated variance (Smyth 2004) weighs a comparison's own variance against that of all comparisons, by how alike
they are. Alone it finds differences that are not there if one spread is larger than the others: up to 22 % of tables.
So the larger of own and moderated counts, with the own degrees of freedom n - 1 where that is the own one, and else
with no more than (n - 1) sqrt(comparisons). `docs/statistics.md` has the rates of false claims.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ablate.store.statistics.paired_differences import Floats, Paired


def guard_variance(pairs: Paired) -> Paired:
    """Return the summary with guarded standard errors and their degrees of freedom; arrays [..., comparisons].

    As from `welch`, `n` is one more than the degrees of freedom and `sd` the standard error times sqrt(n). Comparisons
    without spread share nothing. Alone, a comparison keeps its own.
    """
    used = (pairs.n >= 2) & (pairs.sd > 0)
    count = used.sum(-1, keepdims=True)
    freedom, own = np.where(used, pairs.n - 1, np.nan), np.where(used, pairs.sd, np.nan) ** 2
    prior_freedom, prior = _fit_prior(own, freedom, used, count)
    with np.errstate(invalid="ignore"):
        weighed = (prior_freedom * prior + freedom * own) / (prior_freedom + freedom)
        moderated = np.where(np.isinf(prior_freedom), prior, weighed)
        shared = moderated > own
        lent = np.minimum(prior_freedom + freedom, freedom * np.sqrt(count))
    n = np.where(shared, lent, freedom) + 1
    error = np.sqrt(np.where(shared, moderated, own) / pairs.n)
    return Paired(np.where(used, n, pairs.n), pairs.mean, np.where(used, error * np.sqrt(n), pairs.sd))


def _fit_prior(
    own: Floats, freedom: Floats, used: NDArray[np.bool_], count: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Degrees of freedom and size of the variance that all comparisons have in common, [..., 1], by moments of logs."""

    def average(values: Floats) -> Floats:
        return np.asarray(np.where(used, values, 0.0).sum(-1, keepdims=True) / np.maximum(count, 1))

    logs = np.log(own) - special.digamma(freedom / 2) + np.log(freedom / 2)
    mean = average(logs)
    spread = average((logs - mean) ** 2) * count / np.maximum(count - 1, 1) - average(special.polygamma(1, freedom / 2))
    alike = spread <= 0
    prior = 2 * _inverse_trigamma(np.where(alike, 1.0, spread))
    size = np.exp(mean + np.where(alike, 0.0, special.digamma(prior / 2) - np.log(prior / 2)))
    alone = count < 2  # no degrees of freedom: nothing is lent
    return np.where(alone, 0.0, np.where(alike, np.inf, prior)), size


def _inverse_trigamma(values: Floats) -> Floats:
    """Solve trigamma(y) = values > 0 by Newton's method on 1 / trigamma, which is convex (Smyth 2004)."""
    y = 0.5 + 1 / values
    for _ in range(50):
        trigamma = special.polygamma(1, y)
        y = y + trigamma * (1 - trigamma / values) / special.polygamma(2, y)
    return np.asarray(y)
