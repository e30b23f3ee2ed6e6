"""When the last of some trials is done: workers take one after another, so the last round is seldom full.

Five equal trials on four workers take two rounds, and the longest of four trials on four workers is longer than their
mean. Both are drawn: a worker that is free takes the next trial, all cells with their first seed, then the second.
"""

from typing import Final

import numpy as np

from runners.planning.posterior import DRAWS, SINGLE, Floats, Pooled

FEW_ROUNDS: Final = 20
"""Beyond it the last round is less than a twentieth, and trials are taken to be equal."""


def wall_s(pooled: Pooled, at_once: int, noise: float, *, seed: int = 0) -> Floats:
    """Draws of the seconds until the trials of `pooled` are done, `at_once` of them at a time."""
    trials = sum(count for count, _ in pooled.cells)
    busy = min(at_once, trials)
    if trials > FEW_ROUNDS * busy:
        return pooled.trial_s / trials * -(-trials // busy)
    stretch = _stretch(pooled, busy, noise, np.random.default_rng(seed))
    return pooled.trial_s / busy * np.resize(stretch, DRAWS)


def _stretch(pooled: Pooled, busy: int, noise: float, random: np.random.Generator) -> Floats:
    """Draws of how many times as long as work that is shared evenly."""
    free, total = np.zeros((SINGLE, busy)), np.zeros(SINGLE)
    draws = np.arange(SINGLE)
    for turn in range(max(count for count, _ in pooled.cells)):
        for count, seconds in pooled.cells:
            if turn < count:
                took = seconds * np.exp(random.normal(0.0, noise, SINGLE))
                free[draws, free.argmin(axis=1)] += took
                total += took
    return np.asarray(free.max(axis=1) * busy / total)
