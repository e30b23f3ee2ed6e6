"""Two arms whose runs share no seeds: Welch's t test.

A comparison is a mean difference with a standard error and degrees of freedom, whatever they come from. Welch's is
written as the `Paired` summary with the same three: of as many pairs as its degrees of freedom and one. So every
interval, p value and verdict is computed by one and the same code.
"""

import numpy as np

from store.statistics.paired_differences import Floats, Paired


def welch(cell: Floats, baseline: Floats) -> Paired:
    """The summary that judges `cell` [..., n] against `baseline` [..., m] without pairs (Welch 1947); arrays [...].

    NaN below two runs in an arm. `sd` is the standard error times sqrt(n), not the spread of anything.
    """
    n, m = cell.shape[-1], baseline.shape[-1]
    mean = cell.mean(-1) - baseline.mean(-1) if n and m else np.full(cell.shape[:-1], np.nan)
    if n < 2 or m < 2:
        return Paired(np.full(mean.shape, np.nan), mean, np.full(mean.shape, np.nan))
    ours, theirs = cell.var(-1, ddof=1) / n, baseline.var(-1, ddof=1) / m
    squared = ours + theirs
    with np.errstate(invalid="ignore"):
        freedom = squared**2 / (ours**2 / (n - 1) + theirs**2 / (m - 1))
    freedom = np.where(squared > 0, freedom, n + m - 2.0)
    return Paired(freedom + 1, mean, np.sqrt(squared * (freedom + 1)))


def spread(cell: Floats, baseline: Floats) -> float:
    """Standard deviation of the difference of one run of each arm, which is what a further pair would add."""
    if cell.size < 2 or baseline.size < 2:
        return float("nan")
    return float(np.sqrt(cell.var(ddof=1) + baseline.var(ddof=1)))


def chance_of_gain(cell: Floats, baseline: Floats, *, better: str) -> float:
    """Share of all pairs of a run of each arm in which the cell's is better, ties half (Mann and Whitney 1947)."""
    if not cell.size or not baseline.size:
        return float("nan")
    gains = cell[:, None] - baseline
    gains = -gains if better == "lower" else gains
    return float(((gains > 0) + 0.5 * (gains == 0)).mean())
