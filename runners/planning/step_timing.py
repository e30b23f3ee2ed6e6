"""How long a trial would take, from training it for a moment with everything it says thrown away."""

import time
from collections.abc import Callable
from typing import Any, final

from grid import Spec
from runners.training.training_context import NullContext, TrainingContext, TrainingResult


def seconds_of(
    trial: Spec, train: Callable[[Any, TrainingContext], TrainingResult], *, watched_s: float = 1.0
) -> float | None:
    """Seconds the training steps of `trial` take on this machine; evaluation is not counted.

    None where no pace can be told, because training is over at once. What training raises is not caught.
    """
    watch = Stopwatch(watched_s)
    train(trial, watch)
    return watch.seconds


@final
class Stopwatch(NullContext):
    """Surroundings that only watch the clock, and ask training to stop after `watched_s` seconds of steps."""

    def __init__(self, watched_s: float) -> None:
        super().__init__()
        self._watched_s = watched_s
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None
        self._steps = 0

    @property
    def seconds(self) -> float | None:
        """For all steps, at the pace after the first step, which pays for what is done once."""
        if self._first is None or self._last is None or self._last[1] <= self._first[1]:
            return None
        pace = (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])
        return pace * self._steps

    def progress(self, step: int, steps: int, loss: float) -> None:
        """Note when the step was."""
        del loss
        self._steps = steps
        self._last = (time.monotonic(), step)
        self._first = self._first or self._last

    def stop_requested(self) -> bool:
        """Whether enough was seen."""
        return self._first is not None and time.monotonic() - self._first[0] >= self._watched_s
