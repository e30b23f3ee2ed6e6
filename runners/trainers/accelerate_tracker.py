"""A tracker for `accelerate`; see `ablate.runners.trainers`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from accelerate.tracking import GeneralTracker, on_main_process

from ablate.grid.run import RunRecorder
from ablate.runners.trainers.own_checkpoints import OwnCheckpoints


@final
class AccelerateTracker(GeneralTracker):
    """Logs what `accelerator.log` is given; `log_kwargs={"ablate": {"evaluation": True}}` records an evaluation."""

    name, requires_logging_directory = "ablate", False

    def __init__(self, run: RunRecorder, save: Callable[[Path], object] | None) -> None:
        super().__init__()
        self._run, self._own, self._save = run, OwnCheckpoints(run), save
        self._step = 0

    @property
    def tracker(self) -> RunRecorder:
        """The run."""
        return self._run

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint from which the trial goes on; None at its beginning."""
        return self._own.latest

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, *, evaluation: bool = False) -> None:
        """Record values, without texts; after metrics, save and stop if the trial is to."""
        if step is not None:
            self._step = step
            self._own.note_step(step, None)
        numbers = {name: value for name, value in values.items() if not isinstance(value, str)}
        if evaluation:
            for name, value in numbers.items():
                self._run.evaluate(name, value) if step is None else self._run.evaluate(step, name, value)
            return
        self._run.log(step, numbers)
        if self._save is not None and step is not None and self._own.stop_requested:
            self.save(step)
            self._own.stop()

    @on_main_process
    def finish(self) -> None:
        """Say that training has ended; `accelerator.end_training` calls it."""
        if self._step:
            self._own.finish(self._step)

    def save(self, step: int) -> None:
        """Save the state of `step`, from which the trial goes on if it is interrupted."""
        if self._save is not None and self._own.keeps:
            place = self._own.directory / f"step-{step}"
            self._save(place)
            self._own.record(step, place)
