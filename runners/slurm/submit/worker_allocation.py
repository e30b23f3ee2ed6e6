"""Numbers of workers: for each resource class, and for each array under a limit on running workers."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

USUAL_TRIALS = 5
"""Trials per worker slot if their duration is unknown."""

FILL = 0.5
"""Share of its time limit that a worker gets work for."""


class Load(NamedTuple):
    """The work of one class."""

    trials: int
    slots: int
    """Trials side by side in one worker."""
    limit_s: float
    seconds: float | None
    """Duration of all trials, one after the other; None: unknown."""

    @property
    def most(self) -> int:
        """Most workers that all have a trial."""
        return max(1, ceil(self.trials / self.slots))

    @property
    def wanted(self) -> int:
        """Workers that fill half of their time limit."""
        if self.seconds is None:
            return min(self.most, ceil(self.trials / self.slots / USUAL_TRIALS))
        return max(1, min(self.most, ceil(self.seconds / self.slots / (FILL * self.limit_s))))


def workers(loads: Sequence[Load], asked: int | None) -> list[int]:
    """Return the workers of each class: `asked` in total, shared by work; None: as many as the work fills.

    Each class has at least one worker, and no worker without a trial.
    """
    if asked is None:
        return [load.wanted for load in loads]
    known = all(load.seconds for load in loads)
    work = [(load.seconds if known and load.seconds else float(load.trials)) / load.slots for load in loads]
    return split(asked, work, [load.most for load in loads])


def split(total: int, weights: Sequence[float], most: Sequence[int]) -> list[int]:
    """Split `total` in the ratio of `weights`: at least 1 each, at most `most`."""
    parts = [1] * len(weights)
    for _ in range(max(0, min(total, sum(most)) - len(weights))):
        growing = [index for index in range(len(parts)) if parts[index] < most[index]]
        parts[max(growing, key=lambda index: weights[index] / parts[index])] += 1
    return parts


def at_once(sizes: Sequence[int], limit: int | None) -> list[int]:
    """Return how many tasks of each array may run at the same time; at least one each."""
    if limit is None:
        return list(sizes)
    return split(limit, [float(size) for size in sizes], sizes)
