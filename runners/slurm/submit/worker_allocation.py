"""How many workers each resource class gets, and how arrays share a limit on those that run at once."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

USUAL_TRIALS = 5
"""Trials that a worker is given one after the other, where nobody knows how long they take."""

FILL = 0.5
"""Of its time limit, the part that a worker is given work for."""


class Load(NamedTuple):
    """The work of one class."""

    trials: int
    slots: int
    """Trials side by side in one worker."""
    limit_s: float
    seconds: float | None
    """Of all its trials, one after the other; None: unknown."""

    @property
    def most(self) -> int:
        """Workers that all have something to do."""
        return max(1, ceil(self.trials / self.slots))

    @property
    def wanted(self) -> int:
        """Workers that fill half of their time limit."""
        if self.seconds is None:
            return min(self.most, ceil(self.trials / self.slots / USUAL_TRIALS))
        return max(1, min(self.most, ceil(self.seconds / self.slots / (FILL * self.limit_s))))


def workers(loads: Sequence[Load], asked: int | None) -> list[int]:
    """Workers of every class: `asked` in all, shared by estimated work, or as many as their work fills.

    Each class has at least one, and none more than it has trials to hand out at once.
    """
    if asked is None:
        return [load.wanted for load in loads]
    work = [_work(load, loads) / load.slots for load in loads]
    return shared(asked, work, [load.most for load in loads])


def _work(load: Load, loads: Sequence[Load]) -> float:
    """Seconds, or trials where those of a class are not known."""
    known = all(each.seconds for each in loads)
    return load.seconds if known and load.seconds else float(load.trials)


def shared(total: int, weights: Sequence[float], most: Sequence[int]) -> list[int]:
    """Whole parts of `total` in the ratio of `weights`: at least 1 each, at most `most`."""
    found = [1] * len(weights)
    for _ in range(max(0, min(total, sum(most)) - len(weights))):
        open_ = [at for at in range(len(found)) if found[at] < most[at]]
        found[max(open_, key=lambda at: weights[at] / found[at])] += 1
    return found


def at_once(sizes: Sequence[int], limit: int | None) -> list[int]:
    """How many tasks of each array may run at the same time, `limit` in all; at least one each."""
    if limit is None:
        return list(sizes)
    return shared(limit, [float(size) for size in sizes], sizes)
