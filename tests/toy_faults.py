"""Toy training on machines that are not as they should be, by the environment of the task.

Trials name what trains them: `execution.trained_by` is `toy_faults:<name>`.
"""

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import toy_training
from toy_training import Falling, ToyTrial

import ablate.runners.attempts.attempt
import ablate.store.files.atomic
import ablate.store.files.attempts
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.processes.training_context import TrainingContext, TrainingResult

_poisoned = False


def lacking(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Where the environment says LACKING, what every trial needs is not there."""
    if os.environ.get("LACKING"):
        raise EnvironmentProblem("cannot read /data/text: No such file or directory")
    return toy_training.train(trial, surroundings)


def broken(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Where the environment says BROKEN, whatever is tried fails."""
    if os.environ.get("BROKEN"):
        raise ValueError("a library is not what it should be")
    return toy_training.train(trial, surroundings)


def poisoning(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Seed 2 triggers an assertion on the device, after which CUDA refuses every call of the process."""
    global _poisoned
    _poisoned = _poisoned or trial.seed == 2
    if _poisoned:
        raise RuntimeError("CUDA error: device-side assert triggered")
    return toy_training.train(trial, surroundings)


def hanging(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Where the environment says HANGING, a falling operator is busy beyond any limit and hears nothing."""
    if os.environ.get("HANGING") and isinstance(trial.operator, Falling):
        while True:
            time.sleep(1)
    return toy_training.train(trial, surroundings)


def unwritable(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """No record of a falling operator can be written, once a rising one has got somewhere (MEETING exists)."""
    meeting = Path(os.environ["MEETING"])
    if not isinstance(trial.operator, Falling):
        plain = surroundings.progress

        def progress(step: int, steps: int | None, loss: float) -> None:
            plain(step, steps, loss)
            meeting.touch()

        surroundings.progress = progress  # type: ignore[method-assign]
        return toy_training.train(trial, surroundings)
    while not meeting.exists():
        time.sleep(0.01)

    def refuse(*_: Any, **__: Any) -> None:
        raise EnvironmentProblem("cannot write: Stale file handle")

    ablate.runners.attempts.attempt.write_json = ablate.store.files.attempts.write_json = refuse  # type: ignore[assignment]
    return toy_training.train(trial, surroundings)


def full(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Where the environment says FULL, the disk takes no record of an end."""
    if os.environ.get("FULL"):

        def refuse(path: Path, *_: Any, **__: Any) -> None:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise ablate.store.files.atomic.environment_problem("write", path, error) from error

        ablate.store.files.attempts.write_json = refuse  # type: ignore[assignment]
    return toy_training.train(trial, surroundings)


def away(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """The file system is away for longer than five tries."""
    ablate.store.files.atomic.PAUSES_S = (0.01,) * len(ablate.store.files.atomic.PAUSES_S)
    plain, left = os.fsync, [2 * len(ablate.store.files.atomic.PAUSES_S)]

    def fsync(descriptor: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        plain(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    try:
        return toy_training.train(trial, surroundings)
    finally:
        surroundings.flush()  # type: ignore[attr-defined]
        os.fsync = plain


def talkative(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Prints much, also what is no valid Unicode; the last trial fails with such a text."""
    for stream in (sys.stdout, sys.stderr):
        for _ in range(3):
            print("\ud800" * 50_000, file=stream, flush=True)
    if trial.seed == 2:
        raise ValueError("\udcff is no text")
    return toy_training.train(trial, surroundings)


class _Mute(ValueError):
    def __str__(self) -> str:
        raise OSError("no text")


class _Strange(ValueError):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def _own_cause() -> Exception:
    error = ValueError("its own cause")
    error.__cause__ = error
    return error


ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError("\ud800 \udcff"),
    _Mute,
    _Strange,
    lambda: ValueError("long " * 10_000_000),
    _own_cause,
    lambda: SystemExit(3),
    lambda: FileNotFoundError(2, "no such file", b"\xff\xfe"),
    lambda: ValueError("a\0b\x1b[31mc"),
)


def unprintable(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Each seed fails with an error of `ERRORS`; seeds beyond succeed."""
    if trial.seed < len(ERRORS):
        raise ERRORS[trial.seed]()
    return toy_training.train(trial, surroundings)


def deleting(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """The first attempt of each trial of seed 1 is deleted while it trains."""
    place: Path = surroundings.log.parent  # type: ignore[attr-defined]
    if trial.seed == 1 and not place.parent.with_suffix(".deleted").exists():
        place.parent.with_suffix(".deleted").touch()
        shutil.rmtree(place)
    return toy_training.train(trial, surroundings)


if os.environ.get("LOG"):  # no attempt can write its log
    ablate.runners.attempts.attempt.Attempt.log = property(lambda _: Path(os.environ["LOG"]))  # type: ignore[assignment]
