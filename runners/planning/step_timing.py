"""Training time of a trial, from a few measured steps."""

import time
from collections.abc import Callable
from typing import Any, Final, final

from grid import Spec
from runners.training.training_context import NullContext, TrainingContext, TrainingResult

MEASURED_STEPS: Final = 5


def measure_seconds(trial: Spec, train: Callable[[Any, TrainingContext], TrainingResult]) -> float | None:
    """Return the seconds of all training steps of `trial` on this machine, without evaluation.

    None if training ends within its first step. An error of training is not caught.
    """
    timer = StepTimer()
    train(trial, timer)
    return timer.seconds


@final
class StepTimer(NullContext):
    """A context that measures a few steps and then stops training. It stores nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None
        self._steps = 0

    @property
    def seconds(self) -> float | None:
        """Seconds of all steps, at the pace after the first step, which pays one-time costs."""
        if self._first is None or self._last is None or self._last[1] <= self._first[1]:
            return None
        pace = (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])
        return pace * self._steps

    def progress(self, step: int, steps: int, loss: float) -> None:
        """Record the time of the step."""
        del loss
        self._steps = steps
        self._last = (time.monotonic(), step)
        self._first = self._first or self._last

    def stop_requested(self) -> bool:
        """Return True after enough steps."""
        return self._first is not None and self._last is not None and self._last[1] - self._first[1] >= MEASURED_STEPS
