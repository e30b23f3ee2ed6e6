"""The run of an experiment by a worker: records values, keeps its state, and ends where it must.

A `Trial` only hands it over: its loop, `training/loop/train.py`, records by the `Attempt` itself.
"""

import json
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn, SupportsFloat, SupportsIndex, final

from ablate.grid import Choice, Experiment, Spec
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.grid.path import value_at
from ablate.grid.run import Run, State, require_reason
from ablate.grid.values import require_whole, show
from ablate.runners.attempts import loop_state
from ablate.runners.attempts.attempt import LeaseLost
from ablate.runners.attempts.loop_state import random_states, set_random_states
from ablate.runners.attempts.recorded_values import Measure, RecordedValues
from ablate.runners.attempts.shared_saves import SharedSaves
from ablate.runners.attempts.step_loops import Batches, StepLoop, batches_of, epoch_loop
from ablate.runners.processes.training_context import (
    Failed,
    TrainingContext,
    TrainingResult,
    TrainingStopped,
    UnfitCheckpoint,
)
from ablate.store.files.checked_values import check_costs

if TYPE_CHECKING:
    import numpy as np

    from ablate.runners.processes.process_group import World


@final
class TrialRun(Run):
    """The run of a trial in a worker; once a stop took effect, every method raises `TrainingStopped`."""

    def __init__(
        self,
        experiment: Experiment,
        context: TrainingContext,
        directory: Path,
        measure: Measure = lambda: None,
        world: "World | None" = None,
    ) -> None:
        """`world` is None if alone."""
        self._world = world
        self._saves = SharedSaves(context, world)
        self._experiment, self._context, self._directory = experiment, context, directory
        self._execution = experiment.execution
        self._opened = self._saves_by_hand = False
        self._measure = measure
        self._values = RecordedValues(context)
        self._loops: dict[str, dict[str, Any]] = {}
        """The parts of a checkpoint of the loops that have ended, by name."""
        self._last_ended = False
        """True once a loop without a name has ended, which no other follows."""
        self._loop: StepLoop[Any] | None = None
        self._before = self._step = self._reached = 0
        """Steps of the loops that have ended; the step at work, counted over all loops; that of a program."""
        self._noted: int | None = None
        """Steps of a program, if anybody knows."""
        self._costs: dict[str, float] = {}
        self._finished: int | None = None
        self._stop_seen = False
        self._over: BaseException | None = None
        self._train_s, self._began, self._resumed = 0.0, time.monotonic(), 0
        self._result: TrainingResult | None = None
        self._restored: Mapping[str, Any] = {}

    @property
    def device(self) -> str:
        if self._world is not None:
            return self._world.device.type
        name = self._execution.device
        if self._experiment.own_processes and "torch" not in sys.modules:  # loading it here would take GPU memory, too
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") != "" and Path("/dev/nvidiactl").exists()
            return name if name != "auto" else "cuda" if visible else "cpu"
        if name == "cpu":
            return "cpu"
        from ablate.runners.processes.rank_launcher import device_of

        return device_of(name).type

    @property
    def rank(self) -> int:
        return 0 if self._world is None else self._world.place.rank

    @property
    def world_size(self) -> int:
        return 1 if self._world is None else self._world.place.size

    @property
    def threads(self) -> int:
        return self._execution.threads

    @property
    def directory(self) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory

    def steps(self, steps: int, batches: Batches | None = None, *, state: State, name: str = "") -> "StepLoop[Any]":
        taken = batches_of(batches)
        return StepLoop(self, steps, taken, state, name, lambda step, batch: step if taken is None else (step, batch))

    def batches(self, loader: Iterable[Any]) -> Batches:
        return Batches(loader)

    def epochs(
        self, epochs: int, loader: Iterable[Any], *, state: State, name: str = ""
    ) -> "StepLoop[tuple[int, int, Any]]":
        return epoch_loop(self, epochs, loader, state, name)

    def finish(self, step: SupportsIndex) -> None:
        self._require_open()
        last = require_whole(step, "the last step")
        if self._loop is None:
            self._finished = last
            return
        if last != self._step - self._before:
            at = self._step - self._before
            raise SpecError(
                f"run.finish got step {last}, and the loop {self._loop.name!r} is at {at}; give the step at work"
            )
        self._loop.ended = True

    @property
    def stop_requested(self) -> bool:
        self._require_by_hand("stop_requested")
        if self._loop is None:
            self._stop_seen = self._stop_seen or self._context.stop_requested()
        return self._stop_seen

    @property
    def stop_requested_quietly(self) -> bool:
        """As `stop_requested`, without a sign that training works, by which `execution.stall` goes."""
        self._require_open()
        self._stop_seen = self._stop_seen or self._context.stop_pending()
        return self._stop_seen

    def note_step(self, step: int, steps: int | None) -> None:
        """Report the step of a program, and how many there are, if anybody knows."""
        with self.door():
            self._reached, self._noted = step, steps
            self._context.progress(step, steps, self._values.loss)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        self._require_by_hand("restore")
        if "own" not in self._restored:
            return None
        set_random_states(self._restored["ranks"][self.rank]["random"])
        return self._step, dict(self._restored["own"])

    def save(self, step: SupportsIndex, state: Mapping[str, Any]) -> None:
        self._require_by_hand("save")
        if self._loop is not None or self._loops or self._last_ended:
            raise SpecError("run.save came after a loop, which saves its own state; name it in state=")
        with self.door():
            self._saves_by_hand = True
            self._step = require_whole(step, "the step")
            own = {"step": self._step, "random": random_states()}
            self._write({"own": dict(state), "ranks": self._saves.gather([own])})
            self._context.progress(self._step, self._noted, self._values.loss)

    def keep(self, name: str, state: State) -> None:
        with self.door():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise SpecError(f"the kept state {show(name)} has no fit name; write letters, digits, - and _")
            self._context.keep(self._step, loop_state.take(state), name)

    def load_kept(self, name: str) -> dict[str, Any] | None:
        with self.door():
            kept = self._context.load_kept(name)
            if self._world is None:
                return kept
            shared = self._world.share_restored(None if kept is None else (0, kept))
            return None if shared is None else dict(shared[1])

    def artefact(self, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        with self.door():
            self._context.artefact(self._step_at_work(), name, arrays)

    def cost(self, **costs: SupportsFloat) -> None:
        with self.door():
            self._costs |= check_costs(costs)

    def fail(self, error: BaseException | str, reason: str | None = None) -> NoReturn:
        require_reason(reason)
        with self.door():
            raise Failed(error, reason)

    # Recorded values:

    def _step_at_work(self) -> int:
        return max(self._step, self._reached)

    def _log(self, step: SupportsIndex, metrics: Mapping[str, SupportsFloat]) -> None:
        with self.door():
            self._values.metrics(step, metrics)

    def _evaluate(self, step: SupportsIndex, name: str, value: SupportsFloat | None, *rest: Any) -> None:
        with self.door(may_stop=True):
            self._values.evaluation(step, name, value, *rest)

    def _knock_out(self, paths: Collection[str], name: str, *rest: Any) -> Iterable[tuple[Any, ...]]:
        for path in paths:
            value = value_at(self._experiment, path)
            if isinstance(value, Spec) and not isinstance(value, Choice):
                inner = ", ".join(f"{path}.{each}" for each in type(value).model_fields)
                raise SpecError(f"the knock-out {path!r} is several fields; leave out one of {inner}")
        return self._values.checked.knockout(paths, name, *rest)

    def _probe(self, step: SupportsIndex, name: str, value: SupportsFloat, *rest: Any) -> None:
        with self.door(may_stop=True):
            self._values.probe(step, name, value, *rest)

    # The loops:

    def enter(self, loop: StepLoop[Any]) -> Mapping[str, Any] | None:
        self._require_open()
        if self._loop is not None and self._loop.ended:
            self._step = self._before + self._loop.step + 1  # it was left in this step
            self._loop.step += 1
            self.leave()
        if self._saves_by_hand:
            raise SpecError(f"run.save came before the loop {loop.name!r}, which saves its own state; leave it out")
        if self._loop is not None:
            raise SpecError(f"the loop {loop.name!r} begins inside {self._loop.name!r}; end one before another begins")
        if self._last_ended or (self._loops and not loop.is_named):
            raise SpecError('a second loop of train has no name, by which its state is saved; give each one name="..."')
        if loop.name in self._loops:
            raise SpecError(f"two loops are called {loop.name!r}; rename one")
        self._loop, self._began = loop, time.monotonic()
        saved: Mapping[str, Any] | None = self._restored.get("loops", {}).get(loop.name)
        return saved

    def begin_step(self, step: int) -> None:
        self._require_open()
        self._step = self._before + step

    def end_step(self, step: int) -> None:
        with self.door():
            assert self._loop is not None
            self._step = self._before + step
            self._context.progress(self._step, self._before + len(self._loop), self._values.loss)
            due = self._saves.find_due(self._step)
            if due is not None:
                self._save_loops()
            if due == "stop":
                raise TrainingStopped

    def leave(self) -> None:
        loop = self._loop
        assert loop is not None
        if self._saves.end_loop():
            with self.door():
                self._save_loops()
                raise TrainingStopped
        if loop.is_named:  # training may change the state before the next loop begins
            contents = self._saves.contents(loop)
            self._loops[loop.name] = {} if self.rank else loop_state.copy_to_cpu(contents)
        self._last_ended = not loop.is_named
        self._before += loop.step
        self._step, self._loop = self._before, None
        self._train_s += time.monotonic() - self._began

    def _stop_if_requested(self) -> None:
        if self._context.stop_requested():
            if not self._last_ended:
                self._save_loops()
            raise TrainingStopped

    def _save_loops(self) -> None:
        loops = dict(self._loops)
        if self._loop is not None:
            loops[self._loop.name] = self._saves.contents(self._loop)
        self._write({"loops": loops})

    def _write(self, state: Mapping[str, Any]) -> None:
        self._values.report()
        self._context.save(self._step, {**state, "places": json.dumps(self._values.checked.state())})

    def hand_over(self, train: str) -> None:
        """Have the function `train`, "module:name", train from its own checkpoints, with the attempt as its context.

        Training code may record more afterwards. An error of the function ends the run.
        """
        self._opened = True  # `train` says that it begins, and restores
        try:
            self._result = result = resolve_name(train)(self._experiment, self._context)
        except BaseException as error:
            self._over = error
            raise
        self._step = result.step
        if result.stopped:
            self._over = TrainingStopped()
            raise self._over

    def open(self, data: Mapping[str, Any] | None = None) -> None:
        """Record that training begins, and what it reads; take over what a checkpoint holds."""
        self._opened = True
        with self.door():
            self._context.begins(self.device, None, data)
            restored: tuple[int, Mapping[str, Any]] | None = self._context.restore()
            if self._world is not None:
                restored = self._world.share_restored(restored)
            if restored is None:
                return
            self._resumed, self._restored = restored
            try:
                self._values.checked.restore(json.loads(self._restored["places"]))
            except (LookupError, TypeError, ValueError) as error:
                raise UnfitCheckpoint(f"its places cannot be read ({error})") from error
            self._step = self._resumed if "own" in self._restored else 0

    # The end:

    @contextmanager
    def door(self, *, may_stop: bool = False) -> Iterator[None]:
        """Do something with the run; an error that ends it is raised again by every later call.

        With `may_stop`, a requested stop takes effect here, outside of loops.
        """
        self._require_open()
        try:
            if may_stop and self._loop is None and (self._loops or self._last_ended) and self._world is None:
                self._stop_if_requested()
            yield
        except (TrainingStopped, Failed, EnvironmentProblem, UnfitCheckpoint, LeaseLost) as error:
            self._over = error
            raise

    def _require_open(self) -> None:
        if self._over is not None:
            raise self._over
        if not self._opened:
            self.open()

    def _require_by_hand(self, what: str) -> None:
        self._require_open()
        if self._world is not None:
            raise SpecError(
                f"run.{what} is for one process, and this trial has several, which save at the same step; use run.steps"
            )

    def close(self) -> None:
        """End the run: what is called later, as by a thread that goes on, raises SpecError."""
        self._over = SpecError("a run records until its training ends; this one has ended")

    def result(self, error: Exception | None) -> TrainingResult:
        """Return the result of training code that has returned or raised `error`; raise what the worker records."""
        if self._over is not None and not isinstance(self._over, TrainingStopped):
            raise self._over
        counted = self._costs.pop("parameters", None)
        parameters = None if counted is None else int(counted)
        if self._result is not None and error is None:
            self._values.report()
            parameters = self._result.parameters if parameters is None else parameters
            return replace(self._result, parameters=parameters, cost={**self._result.cost, **self._costs})
        stopped = self._over is not None or (self._stop_seen and self._finished is None)
        if error is not None and not stopped:
            if not self._context.stop_requested():
                if self._world is not None:
                    self._world.blame(error)
                raise error
            stopped = True  # such as a DataLoader whose processes were ended first
        if not stopped:
            self._values.report()
            self._require_result()
        step = self._step if self._finished is None or stopped else self._finished
        train_s = self._train_s or time.monotonic() - self._began
        return TrainingResult(
            step,
            stopped,
            parameters,
            None,
            train_s=train_s,
            evaluate_s=0.0,
            cost={"steps": max(step - self._resumed, 0), "train_s": train_s, **self._costs},
        )

    def _require_result(self) -> None:
        if self._loop is not None and not self._loop.ended:
            at, steps = self._step - self._before, len(self._loop)
            raise Failed(
                f"train left the loop {self._loop.name!r} at step {at} of {steps}; call run.finish(step) before a "
                "break that ends it early"
            )
        if not self.rank:
            self._values.require(self._measure)
