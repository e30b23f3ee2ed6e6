"""Toy training that is judged on the way, for halving: grids of it, and processes that die at a given step.

The two `levels` of a cell say how it does in the first third of its steps and afterwards, so that ranks change.
"""

import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow

from grid import Grid, Measure, Spec, over
from grid.spec import OutsideKey
from runners.attempts.checkpoint import save_checkpoint
from runners.attempts.worker import Entry
from runners.machines import Inline
from runners.planning.halving import Halving
from runners.provenance.code import Codes
from runners.runs.halving import run_by_halving
from runners.runs.run import RunOptions, RunResult
from runners.surroundings import Finished, Surroundings
from store.database import _empty

STEPS = 12


class Schedule(Spec):
    steps: int = STEPS
    evaluate_every: int | None = 2

    def evaluates(self, step: int) -> bool:
        return step == self.steps or (self.evaluate_every is not None and step > 0 and step % self.evaluate_every == 0)


class Execution(Spec):
    log_every: int = 1
    checkpoint_s: float = 20.0


class HalvedTrial(Spec):
    levels: tuple[float, float] = (1.0, 1.0)
    breaks_at: int = 0
    training: Schedule = Schedule()
    seed: int = 0
    execution: Annotated[Execution, OutsideKey()] = Execution()


ENTRY = Entry(trial="halved:HalvedTrial", train="halved:train", preload=("pyarrow.parquet",))
OPTIONS = RunOptions(entry=ENTRY, land_every_s=None, progress=False)
HALVING = Halving(2, min_steps=3)

_left = [-1]
"""Steps that this process lives for."""


def halved_grid(levels: dict[str, tuple[float, float]], *, seeds: int = 2, **base: Any) -> Grid:
    """A cell per name with its levels; the first is the baseline."""
    names = list(levels)
    return Grid(
        name="halved",
        base=HalvedTrial(**base),
        axes=[over("levels", list(levels.values()), name="arm", labels=names)],
        seeds=range(seeds),
        baseline={"arm": names[0]},
        measure=Measure(name="mse", point={"at": 1.0}),
    )


LEVELS = {"base": (9, 9), "a": (1, 4), "b": (2, 3), "c": (3, 1), "d": (4, 1), "e": (5, 1)}
"""Early a, b, c lead; of these c leads late."""
GRID = halved_grid(LEVELS)
SHORT = halved_grid(LEVELS, seeds=1)
"""Half of its trials, and the same ones."""


def train(trial: HalvedTrial, surroundings: Surroundings) -> Finished:
    """A sum of draws that seed and step decide; it is judged after the checkpoint of a step, as trials are."""
    surroundings.begins("cpu", "toy", None)
    step, state = surroundings.restore() or (0, {"sum": 0.0})
    total: float = state["sum"]
    while True:
        if trial.training.evaluates(step):
            level = trial.levels[step > STEPS // 3]
            surroundings.evaluation(step, "mse", level + total / 1e3, point={"at": 1.0}, items=3, se_items=0.1)
        if step == trial.training.steps:
            return _finished(step, stopped=False)
        step += 1
        _live()
        if step == trial.breaks_at:
            raise ValueError("broken")
        total += random.Random(f"{trial.seed} {step}").random()
        surroundings.metrics(step, {"loss": total})
        surroundings.progress(step, trial.training.steps, total)
        stopped = surroundings.stop_requested()
        if stopped or surroundings.checkpoint_due():
            surroundings.save(step, {"sum": total})
        if stopped:
            return _finished(step, stopped=True)


def _live() -> None:
    _left[0] -= 1
    if _left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def _finished(step: int, *, stopped: bool) -> Finished:
    return Finished(step, stopped, parameters=7, operator_parameters=2, train_s=0.1, evaluate_s=0.01)


def halve(root: Path, grid: Grid = GRID, halving: Halving = HALVING, **options: Any) -> RunResult:
    """Run `grid` by halving with toy training."""
    return run_by_halving(root, grid, halving, Inline(), RunOptions(**{**vars(OPTIONS), **options}))


def killed(root: Path, lives: Sequence[int]) -> list[int]:
    """Halve SHORT in one process after another, of so many steps each; what they ended with, as exit codes."""
    pyarrow.array([0.0])  # loads what else would be loaded in each
    Codes().sources(HalvedTrial())
    _empty()
    with tempfile.TemporaryDirectory() as place:
        save_checkpoint(Path(place), "ab" * 16, 1, {})
    ends = []
    for _left[0] in lives:
        pid = os.fork()
        if pid == 0:
            try:
                halve(root, SHORT)
            finally:
                os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return ends


if __name__ == "__main__":
    sys.modules["halved"] = sys.modules["__main__"]
    sys.stdout.write(f"{killed(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]])}")
