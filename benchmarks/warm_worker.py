"""Trials for measuring a warm worker: empty ones, tiny real ones, and a log of where its time goes.

The fork server imports this before it makes workers. If ABLATE_SPANS names a directory, each row
adds a JSON line to a file there. It has the begin and end (seconds of this machine's clock), and the exclusive
seconds and
calls of each function.
"""

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from spans import Spans

import runners.attempts.attempt
import runners.attempts.worker
import store.files.shards
from grid import Grid, Measure, Spec
from grid.spec import Choice, OutsideKey
from runners import LinearFunctions, ShiftGrid, Training, Trial
from runners.attempts.manifest import Manifest
from runners.attempts.worker import Outcome, Worker, WorkerEntry
from runners.provenance.code import Codes
from runners.training.loop import train as train_real
from runners.training.training_context import TrainingContext, TrainingResult
from runners.trial import Execution
from store.files.shards import ShardBuffer
from variants import gpt2, ssa

_PRELOAD = (*WorkerEntry().preload, "warm_worker")
NOTHING = WorkerEntry(trial="warm_worker:Nothing", train="warm_worker:train_nothing", preload=_PRELOAD)
TINY = WorkerEntry(train="warm_worker:train_tiny", preload=_PRELOAD)

spans = Spans()


class Idle(Choice):
    """An operator in name."""


class Resting(Idle):
    """The only one."""

    kind: Literal["resting"] = "resting"


class Nothing(Spec):
    """A trial of no steps: all it costs is overhead."""

    operator: Idle = Resting()
    seed: int = 0
    execution: Annotated[Execution, OutsideKey()] = Execution(device="cpu")


def train_nothing(trial: Nothing, surroundings: TrainingContext) -> TrainingResult:
    """One row per table, so that there are shards to write."""
    del trial
    surroundings.begins("cpu", "none", None)
    surroundings.metrics(1, {"loss": 0.0})
    surroundings.progress(1, 1, 0.0)
    surroundings.evaluation(1, "mse", 0.0, point={}, items=1, se_items=None)
    surroundings.probe(1, "number", 0.0, layer=0, head=None, point={})
    return TrainingResult(1, stopped=False, parameters=0, operator_parameters=0, train_s=0.0, evaluate_s=0.0)


def train_tiny(trial: Trial, surroundings: TrainingContext) -> TrainingResult:
    """Real training; its steps and evaluations are told apart from what is around them, such as building the model."""
    with spans.span("model built, data opened"):
        finished = train_real(trial, surroundings)
    spans.seconds["model built, data opened"] -= finished.train_s + finished.evaluate_s
    spans.seconds["steps and evaluations"] += finished.train_s + finished.evaluate_s
    return finished


def nothing(trials: int) -> Grid:
    """So many trials of no steps."""
    return Grid(name="nothing", base=Nothing(), seeds=range(trials))


def tiny(trials: int, steps: int, execution: Execution | None = None, **model: int) -> Grid:
    """Replicates of one small cell that learns linear functions in context."""
    shifts = ShiftGrid(sigma_x=(1,), sigma_f=(1, 2), functions=10, sequences=4, points=11)
    base = Trial(
        task=LinearFunctions(points=11, batch=32, evaluation=shifts),
        model=gpt2(**{"layers": 2, "heads": 2, "width": 32, "max_positions": 32, **model}),
        operator=ssa(),
        training=Training(steps=steps),
        execution=execution or Execution(device="cpu", log_every=10),
    )
    return Grid(name="tiny", base=base, seeds=range(trials), measure=Measure(name="mse"))


def _watch() -> None:
    for owner, name, label in (
        (os, "fsync", "fsync"),
        (runners.attempts.worker, "claim", "claim and start.json"),
        (runners.attempts.worker, "discard_checkpoints", "checkpoints discarded"),
        (runners.attempts.attempt, "write_json", "start.json again, end.json"),
        (store.files.shards, "encode_shard", "shards encoded"),
        (ShardBuffer, "flush", "shards written"),
        (Codes, "sources", "sources of the trial"),
        (Worker, "_trial", "trial validated"),
        (Manifest, "line", "line of the manifest"),
    ):
        spans.watch(owner, name, label)
    run = Worker.run

    def told(self: Worker, row: int) -> Outcome:
        spans.begin_anew()
        began = time.time()
        with spans.span("the rest of the worker"):
            outcome = run(self, row)
        _write({"row": row, "began": began, "ended": time.time(), "s": spans.seconds, "calls": spans.calls})
        return outcome

    Worker.run = told  # type: ignore[method-assign]


def _write(record: dict[str, Any]) -> None:
    with (Path(os.environ["ABLATE_SPANS"]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


if "ABLATE_SPANS" in os.environ:
    _watch()
