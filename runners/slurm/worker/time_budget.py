"""The time of a worker task: is enough left for one more trial."""

import math
import time
from collections.abc import Callable
from typing import final


@final
class TimeBudget:
    """Decides if there is time for one more trial in a task that ends in `seconds`.

    A trial needs as long as 95 of 100 trials took here, at most a quarter of `limit_s`: longer trials take several
    lives of a worker anyway. `signal_s` is for saving.
    """

    def __init__(
        self, seconds: float, limit_s: float, signal_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._limit_s = limit_s
        self._signal_s = signal_s
        self._durations: list[float] = []

    @property
    def left_s(self) -> float:
        """Seconds until the task ends; negative after the end."""
        return self._end - self._clock()

    def add(self, seconds: float) -> None:
        self._durations.append(seconds)

    @property
    def needed_s(self) -> float:
        """Seconds that the next trial needs."""
        durations = sorted(self._durations)
        percentile = durations[math.ceil(0.95 * len(durations)) - 1] if durations else 0.0
        return min(percentile, self._limit_s / 4)

    def is_enough(self) -> bool:
        return self.left_s - self._signal_s > self.needed_s
