"""Differences between two cells over seeds: estimate, t interval, p values, effect size; paired, or Welch's.

A seed fixes the data order, the evaluation sample and the initial weights, so the difference of two cells at one
seed is one observation. Everything here works on summaries (`Paired`) of any shape, so that a simulation of thousands
of grids runs the very code that judges a real one.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

MIN_SIGN_FLIP_PAIRS: Final = 6  # fewer pairs cannot reach p = 0.05: the smallest two-sided p is 2 / 2**n

EXACT_SIGN_FLIP_PAIRS: Final = 20
"""All 2**n sign patterns are enumerated up to here; beyond, random patterns of a fixed seed."""


class Paired(NamedTuple):
    """Summaries of paired differences; three arrays of one shape, in analysis units (difference or log ratio)."""

    n: Floats
    mean: Floats
    sd: Floats

    @property
    def error(self) -> Floats:
        """Standard error of the mean; NaN below two pairs or without spread, where no t statistic exists."""
        usable = (self.n >= 2) & (self.sd > 0)
        return np.where(usable, self.sd / np.sqrt(np.maximum(self.n, 1)), np.nan)

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom; NaN below two pairs."""
        return np.where(self.n >= 2, self.n - 1, np.nan)


def summarise(differences: Floats) -> Paired:
    """Summary over the last axis: `differences` [..., n] gives arrays [...]; the sd of one value is NaN."""
    n = differences.shape[-1]
    empty = np.full(differences.shape[:-1], np.nan)
    mean = differences.mean(-1) if n else empty
    sd = differences.std(-1, ddof=1) if n > 1 else empty
    return Paired(np.full(mean.shape, float(n)), mean, sd)


def welch(cell: Floats, baseline: Floats) -> Paired:
    """The summary that judges `cell` [..., n] against `baseline` [..., m] without pairs (Welch 1947); arrays [...].

    It has Welch's mean, standard error and degrees of freedom, so the functions below give Welch's interval and p.
    `sd` is the standard error times sqrt(n), not the spread of anything. NaN below two runs in an arm.
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


def t_interval(pairs: Paired, alpha: float | Floats = 0.05) -> tuple[Floats, Floats]:
    """Two-sided Student interval of level 1 - alpha for the mean difference; NaN where the error or alpha is."""
    half = special.stdtrit(pairs.freedom, 1 - alpha / 2) * pairs.error
    return pairs.mean - half, pairs.mean + half


def p_zero(pairs: Paired) -> Floats:
    """Two-sided p of "the difference is zero" (paired t test)."""
    return np.asarray(2 * special.stdtr(pairs.freedom, -np.abs(pairs.mean / pairs.error)))


def p_beyond(pairs: Paired, rope: float) -> Floats:
    """Two-sided p of "the difference is at most the ROPE". If p < a, the 1 - a interval is outside +-rope."""
    p = 2 * special.stdtr(pairs.freedom, (rope - np.abs(pairs.mean)) / pairs.error)
    return np.asarray(np.minimum(p, 1.0))


def p_within(pairs: Paired, rope: float) -> Floats:
    """Two-sided p of "the difference is at least the ROPE". If p < a, the 1 - a interval is inside +-rope.

    This is twice the p of the usual two one-sided tests (Schuirmann 1987), so that one interval answers both questions.
    An effect exactly at the edge of the ROPE is misjudged, to either side, with probability a in all.
    """
    p = 2 * special.stdtr(pairs.freedom, (np.abs(pairs.mean) - rope) / pairs.error)
    return np.asarray(np.minimum(p, 1.0))


def hedges_g(pairs: Paired) -> Floats:
    """Mean difference in standard deviations of the differences, with the exact small-sample factor (Hedges 1981)."""
    freedom = pairs.freedom
    with np.errstate(invalid="ignore"):
        small = np.exp(special.gammaln(freedom / 2) - special.gammaln((freedom - 1) / 2)) / np.sqrt(freedom / 2)
    usable = (freedom >= 2) & (pairs.sd > 0)
    return np.where(usable, small * pairs.mean / np.where(usable, pairs.sd, 1.0), np.nan)


def superiority(differences: Floats, *, better: str) -> float:
    """Share of `differences` in which the cell beats its baseline, ties half; NaN without any."""
    if differences.size == 0:
        return float("nan")
    gains = -differences if better == "lower" else differences
    return float(((gains > 0) + 0.5 * (gains == 0)).mean())


def pairing_correlation(cell: Floats, baseline: Floats) -> float:
    """Pearson correlation over seeds of the two arms, [n] each: what pairing gained; NaN below 3 or without spread."""
    if cell.size < 3 or np.ptp(cell) == 0 or np.ptp(baseline) == 0:
        return float("nan")
    return float(np.corrcoef(cell, baseline)[0, 1])


def sign_flip_p(differences: Floats) -> float:
    """Two-sided sign-flip test of the mean, `differences` [n]; NaN below six pairs.

    Exact up to 20 pairs; beyond, 100,000 random sign patterns of a fixed seed with the observed one counted
    (Phipson and Smyth 2010), so that the same data give the same p.
    """
    n = differences.size
    if n < MIN_SIGN_FLIP_PAIRS:
        return float("nan")
    size = np.abs(differences)
    threshold = abs(float(differences.sum())) - 1e-12 * float(size.sum())  # sums of one pattern differ by rounding
    if n <= EXACT_SIGN_FLIP_PAIRS:
        sums = np.zeros(1)
        for each in size:
            sums = np.concatenate([sums - each, sums + each])
        return float((np.abs(sums) >= threshold).mean())
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(100_000, n))
    return float((1 + (np.abs(signs @ size) >= threshold).sum()) / 100_001)


def or_null(value: float | Floats) -> float | None:
    """A number of a frame: `value`, or null where it is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None
