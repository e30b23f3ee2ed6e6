"""Training that is small but real: it logs, checkpoints, stops, resumes exactly, and fails in every way on demand.

Worker processes import the class by its module, and train by what `execution.trained_by` names.
"""

import ctypes
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ablate.grid import Choice, Experiment, OutsideKey
from ablate.grid.experiment import ExperimentExecution
from ablate.runners.processes.training_context import Diverged, TrainingContext, TrainingResult


class Execution(ExperimentExecution):
    path: str = "reference"
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    trained_by: str = "toy_training:train"
    """The function that trains, as "module:function"."""
    step_s: float = 0.0
    deaths: str = ""
    """A file of single characters: one is eaten at every death that is due."""
    accumulate: int = Field(1, ge=1, le=6)
    held: str = ""
    """A file: trials stay in their first step until it exists or they are asked to stop."""
    fits: int = 0
    """The fate "too_big" spares a trial in so many micro-batches."""


class Toy(Choice):
    """An operator in name."""


class Falling(Toy):
    kind: Literal["falling"] = "falling"
    rate: float = 0.9


class Rising(Toy):
    kind: Literal["rising"] = "rising"
    rate: float = 1.1


class ToyTrial(Experiment):
    kind: Literal["tests_toy"] = "tests_toy"
    operator: Toy = Falling()
    steps: int = 20
    fate: Literal[
        "ok",
        "diverges",
        "raises",
        "needs_memory",
        "cannot_allocate",
        "too_big",
        "dies",
        "sticks",
        "holds",
        "evaluates",
        "hogs",
    ] = "ok"
    fate_at: int = 10
    execution: Annotated[Execution, OutsideKey()] = Execution()

    def train(self, run: Any) -> None:
        run.hand_over(self.execution.trained_by)

    def parameters(self) -> int:
        return self.steps + 1

    def operator_parameters(self) -> int:
        return 1 if self.operator.label == "falling" else 2


def train(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """A number that each step multiplies by the rate and shakes by a draw that only seed and step decide."""
    surroundings.begins("cpu", "toy", {"files": 1})
    step, state = surroundings.restore() or (0, {"value": 1.0, "trace": []})
    value: float = state["value"]
    trace: list[float] = list(state["trace"])
    while step < trial.steps:
        if surroundings.stop_requested():
            surroundings.save(step, {"value": value, "trace": trace})
            return _finished(step, stopped=True)
        step += 1
        time.sleep(trial.execution.step_s)
        value = value * trial.operator.rate + random.Random(f"{trial.seed} {step}").random() / 100  # type: ignore[attr-defined]
        trace.append(value)
        surroundings.metrics(step, {"loss": value, "rate": step / 100})
        surroundings.progress(step, trial.steps, value)
        while trial.execution.held and not (Path(trial.execution.held).exists() or surroundings.stop_requested()):
            time.sleep(0.01)
        if surroundings.checkpoint_due():
            surroundings.save(step, {"value": value, "trace": trace})
        if step % trial.fate_at == 0:
            _meet(trial, step, value)
    if trial.fate == "evaluates":
        time.sleep(600)
    surroundings.evaluation(step, "mse", value, point={"sigma": 1.0}, items=3, se_items=0.5)
    surroundings.probe(step, "number.rate", sum(trace), layer=0, head=None, point={})
    return _finished(step, stopped=False)


def _finished(step: int, *, stopped: bool) -> TrainingResult:
    return TrainingResult(step, stopped, parameters=7, operator_parameters=2, train_s=0.1, evaluate_s=0.01)


def _meet(trial: ToyTrial, step: int, value: float) -> None:
    if trial.fate == "diverges":
        raise Diverged(step, value)
    if trial.fate == "raises":
        raise ValueError(f"seed {trial.seed} met its fate")
    if trial.fate == "needs_memory":
        raise MemoryError
    if trial.fate == "too_big" and trial.execution.accumulate < trial.execution.fits:
        raise MemoryError
    if trial.fate == "cannot_allocate":
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 800 bytes")
    if trial.fate == "sticks":
        time.sleep(600)
    if trial.fate == "holds":
        ctypes.PyDLL(None).sleep(600)  # in C, with the lock of the interpreter
    if trial.fate == "hogs" and trial.execution.accumulate < max(2, trial.execution.fits):
        _hog(1 << 30)
    if trial.fate == "dies":
        _die(Path(trial.execution.deaths))


def _hog(size: int) -> None:
    """Use so much memory until SLURM sees it."""
    kept = bytearray(size)
    time.sleep(60)
    del kept


def _die(deaths: Path) -> None:
    """Kill this process, as often as the file has characters."""
    left: Any = deaths.read_text() if deaths.name else "x"
    if left:
        if deaths.name:
            deaths.write_text(left[1:])
        os.kill(os.getpid(), signal.SIGKILL)


def describe(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Logs what the process is like instead of training."""
    sys.stdout.write(f"hello from seed {trial.seed}\n")
    surroundings.metrics(1, {"threads": float(os.environ["OMP_NUM_THREADS"]), "pid": os.getpid()})
    surroundings.metrics(1, {"here_first": sys.path[0] in ("", str(Path.cwd())), "parent": os.getppid()})
    return _finished(1, stopped=False)
