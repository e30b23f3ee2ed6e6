"""Toy training that keeps a diary of every step, and the grid of it that the chaos test disturbs.

Trials name it as what trains them. The variable CHAOS_STEPS names a directory with a diary file of
each attempt. A line has a word, a step and a time of this machine's clock.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import toy_training
from toy_campaign import toy_grid
from toy_training import Execution, Falling, Rising, ToyTrial

from ablate.grid import Grid, over as axis
from ablate.runners.attempts.attempt import Attempt
from ablate.runners.processes.training_context import TrainingResult

STEPS = 60
CHECKPOINT_S = 1.0
STEP_S = 0.1
FLUSH_EVERY = 4
"""Steps after which rows are published although no checkpoint is due: after a death they are there twice."""
SEEDS = 18
WAITING_SEEDS, WAIT_AT = 3, STEPS // 2
"""Trials of the last seeds stay at this step until nothing is to happen any more: there is always somebody to hit."""
TRAIN = "cluster.chaos_training:train"


def grid(step_s: float = STEP_S) -> Grid:
    """Two trials for each seed; `step_s` is no part of what they are."""
    return Grid(
        name="chaos",
        base=ToyTrial(steps=STEPS, execution=Execution(checkpoint_s=CHECKPOINT_S, step_s=step_s, trained_by=TRAIN)),
        axes=[axis("operator", [Falling(), Rising()], labels=["falling", "rising"])],
        seeds=range(SEEDS),
    )


def hogs(accumulate: int = 1) -> Grid:
    """Two trials that take all memory unless their batch is halved."""
    execution = {"checkpoint_s": CHECKPOINT_S, "step_s": 0.05, "accumulate": accumulate, "trained_by": TRAIN}
    return toy_grid("hogs", seeds=(0,), fates=("hogs",), **execution)


def endless() -> Grid:
    """Two trials whose evaluation is longer than any life of a worker."""
    execution = {"checkpoint_s": 0.1, "step_s": 0.2, "trained_by": TRAIN}
    return toy_grid("endless", seeds=(0,), fates=("evaluates",), steps=4, **execution)


class Kept:
    """The surroundings of an attempt, with a diary; what is done is written down when it has been done."""

    def __init__(self, attempt: Attempt, file: Path, *, waits: bool) -> None:
        self._attempt = attempt
        self._over = over(file.parent) if waits else None
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._write("began", attempt.step)

    def _write(self, what: str, step: int) -> None:
        os.write(self._file, f"{what} {step} {time.monotonic()!r}\n".encode())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attempt, name)

    def stop_requested(self) -> bool:
        while self._over is not None and self._attempt.step >= WAIT_AT and not self._over.exists():
            if self._attempt.stop_requested():
                return True
            time.sleep(0.05)
        return self._attempt.stop_requested()

    def progress(self, step: int, steps: int | None, loss: float) -> None:
        self._write("step", step)
        self._attempt.progress(step, steps, loss)
        if step % FLUSH_EVERY == 0:
            self._attempt.flush()

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        self._attempt.save(step, state)
        self._write("saved", step)


def train(trial: ToyTrial, attempt: Attempt) -> TrainingResult:
    """Toy training; with a diary where one is wanted."""
    place = os.environ.get("CHAOS_STEPS")
    if place is None:
        return toy_training.train(trial, attempt)
    file = Path(place) / f"{trial.key}-{attempt.number:03d}"
    return toy_training.train(trial, Kept(attempt, file, waits=trial.seed >= SEEDS - WAITING_SEEDS))


def over(place: Path) -> Path:
    """The file beside the diaries that says that nothing is to happen any more."""
    return place / "over"


class Line(NamedTuple):
    """A line of a diary."""

    what: str
    step: int
    at: float


def diary(place: Path, trial: str, attempt: int) -> list[Line]:
    """Read the diary of an attempt; empty if it was ended before training."""
    try:
        lines = (place / f"{trial}-{attempt:03d}").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Line(what, int(step), float(at)) for what, step, at in map(str.split, lines)]
