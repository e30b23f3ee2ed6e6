"""Checkpoints that a trainer writes itself, as the state of a trial; and the stop of the trial."""

import os
from pathlib import Path
from typing import NoReturn, final

from ablate.grid.run import RunRecorder
from ablate.runners.attempts.trial_run import TrialRun
from ablate.runners.processes.training_context import TrainingStopped, UnfitCheckpoint


@final
class OwnCheckpoints:
    """The checkpoints of the trainer that logs by `run`; a run of `Campaign.start` keeps none and never stops."""

    def __init__(self, run: RunRecorder) -> None:
        self._trial = run if isinstance(run, TrialRun) else None
        self._saved: tuple[int, str | Path] | None = None

    @property
    def keeps(self) -> bool:
        """True if the run is of a trial, which goes on from a checkpoint."""
        return self._trial is not None

    @property
    def directory(self) -> Path:
        """The directory of the trial, for checkpoints."""
        assert self._trial is not None
        return self._trial.directory

    @property
    def latest(self) -> str | None:
        """The checkpoint from which training goes on. Raises UnfitCheckpoint if its files are gone."""
        restored = None if self._trial is None else self._trial.restore()
        if restored is None or self._trial is None:
            return None
        place = self.directory / restored[1]["checkpoint"]
        if not place.exists():
            with self._trial.door():
                raise UnfitCheckpoint(f"the trainer's files of step {restored[0]} are gone from {place}")
        return str(place)

    @property
    def stop_requested(self) -> bool:
        """True if training is to save and stop."""
        return self._trial is not None and self._trial.stop_requested

    def note_step(self, step: int, steps: int | None) -> None:
        """Report a step, and how many there are, if anybody knows."""
        if self._trial is not None:
            self._trial.note_step(step, steps)

    def record(self, step: int, place: str | Path) -> None:
        """Take the files at `place` as the state of `step`."""
        if self._trial is not None:
            self._saved = step, place
            self._trial.save(step, {"checkpoint": os.path.relpath(place, self.directory)})

    def record_again(self) -> None:
        """Take the latest files together with the values that were logged since."""
        if self._saved is not None:
            self.record(*self._saved)
            self._saved = None

    def finish(self, step: int) -> None:
        """Say that training has ended, at `step`."""
        if self._trial is not None:
            self._trial.finish(step)

    def stop(self) -> NoReturn:
        """End the attempt as stopped; every later call of the run raises the stop again."""
        assert self._trial is not None
        with self._trial.door():
            raise TrainingStopped
