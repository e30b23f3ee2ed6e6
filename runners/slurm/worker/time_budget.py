"""Whether there is time for one more trial, from how long trials took here."""

import math
from typing import final

from runners.slurm.worker.task_environment import Deadline


@final
class TimeBudget:
    """Trials are begun while what is left, without the `signal_s` in which all save and leave, is likely enough.

    That is as long as 95 of 100 trials took on this node, but never more than a quarter of the time limit `limit_s`: a
    longer trial is trained in several lives of its worker anyway.
    """

    def __init__(self, deadline: Deadline, limit_s: float, signal_s: float) -> None:
        self._deadline = deadline
        self._limit_s = limit_s
        self._signal_s = signal_s
        self._seconds: list[float] = []

    @property
    def left_s(self) -> float:
        """Seconds until the task is ended."""
        return self._deadline.left()

    def took(self, seconds: float) -> None:
        """A trial was trained to its end in `seconds`."""
        self._seconds.append(seconds)

    @property
    def needed_s(self) -> float:
        """Seconds that a trial is to have."""
        return min(_percentile(self._seconds, 0.95), self._limit_s / 4)

    def enough(self) -> bool:
        """Whether another trial may be begun."""
        return self._deadline.left() - self._signal_s > self.needed_s


def _percentile(values: list[float], part: float) -> float:
    """The smallest of `values` that `part` of them do not exceed; 0 of none."""
    return sorted(values)[math.ceil(part * len(values)) - 1] if values else 0.0
