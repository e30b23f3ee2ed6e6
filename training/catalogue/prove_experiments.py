"""Laws of experiments of a user's own, by a few steps of their training on the CPU."""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import torch

from ablate.grid import Experiment
from ablate.grid.errors import SpecError
from ablate.grid.names import some
from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.processes.process_state import ProcessState
from ablate.runners.processes.training_context import TrainingContext
from ablate.training.planning.tried_task import one_sentence

STEPS: Final = 6
"""Steps of a training that is tried; more until it has recorded at two of them."""
LONGEST_S: Final = 60.0
"""Seconds of the first training, after which it is stopped at any step."""


@final
class ShortContext(TrainingContext):
    """Records in memory, and asks for a stop at the step `stop_at`; None: once there is enough to compare."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at, self.step, self._began = stop_at, 0, time.monotonic()
        self.recorded: dict[tuple[Any, ...], float] = {}
        self._saved: tuple[int, bytes] | None = None
        self._kept: dict[str, bytes] = {}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.recorded |= {(name, step): value for name, value in values.items()}

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        self.recorded[name, step, *sorted(point.items()), items, se_items] = value

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None:
        where = (name, step, *sorted(point.items()))
        self.recorded |= {(*where, item): value for item, value in zip(items, values, strict=True)}

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        self.recorded[name, step, layer, head, *sorted(point.items())] = value

    def progress(self, step: int, steps: int | None, loss: float) -> None:
        del steps, loss
        self.step = step

    def stop_requested(self) -> bool:
        if self.stop_at is not None:
            return self.step == self.stop_at
        enough = self.step >= STEPS and len({step for _, step, *_ in self.recorded}) > 1
        return enough or time.monotonic() - self._began > LONGEST_S

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        self._saved = step, _bytes_of(state)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        return None if self._saved is None else (self._saved[0], _state_of(self._saved[1]))

    def keep(self, step: int, state: Mapping[str, Any], name: str = "") -> None:
        del step
        self._kept[name] = _bytes_of(state)

    def load_kept(self, name: str) -> dict[str, Any] | None:
        return _state_of(self._kept[name]) if name in self._kept else None


def _bytes_of(state: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    torch.save(dict(state), sink)
    return sink.getvalue()


def _state_of(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state


@final
class TriedExperiment:
    """An experiment with its short training, which the laws share; all are on the CPU, in one process."""

    def __init__(self, experiment: Experiment) -> None:
        self.where = f"experiment {experiment.label!r}"
        here = experiment.execution.changed(device="cpu", gpus=1)
        self.experiment = experiment.changed(execution=here)

    @cached_property
    def first(self) -> ShortContext:
        """A training that was stopped once there was enough to compare."""
        return self.train(self.experiment, ShortContext())

    def train(self, experiment: Experiment, context: ShortContext, *stops: int) -> ShortContext:
        """Train until `context` stops, then until each of `stops`, from the same state and in the same directory."""
        with TemporaryDirectory() as directory:
            for stop in (context.stop_at, *stops):
                context.stop_at = stop
                with one_sentence(f"{self.where}: train()"), ProcessState().isolate(experiment.seed):
                    train_experiment(experiment, context, Path(directory))
        return context


def _data(tried: TriedExperiment) -> None:
    experiment = tried.experiment
    with one_sentence(f"{tried.where}: built from its data"):
        again = type(experiment).model_validate(json.loads(json.dumps(experiment.data())))
    if again != experiment or again.key != experiment.key:
        raise SpecError(
            f"{tried.where}: built from its data, it is another; workers build it from data; keep validators from "
            "changing a field that was changed before"
        )


def _repeat(tried: TriedExperiment) -> None:
    again = tried.train(tried.experiment, ShortContext(tried.first.step))
    _require_equal(tried, again, "trained again with the same seed")


def _stop(tried: TriedExperiment) -> None:
    last = tried.first.step
    if last > 1:
        resumed = tried.train(tried.experiment, ShortContext(last // 2), last)
        _require_equal(tried, resumed, f"stopped at step {last // 2} and resumed")


def _require_equal(tried: TriedExperiment, other: ShortContext, what: str) -> None:
    one, two = tried.first.recorded, other.recorded
    differ = [place for place in {**one, **two} if repr(one.get(place)) != repr(two.get(place))]
    if differ:
        name, step, *_ = place = min(differ, key=lambda place: place[1])
        values = f"{one.get(place)} and then {two.get(place)}"
        names = some(list(dict.fromkeys(str(each[0]) for each in differ)), 4)
        raise SpecError(
            f"{tried.where}, {what}, records other values of {names}: {name} at step {step} is {values}; a run follows "
            "from its fields and seed; hold all that changes in state, and a time belongs into run.cost"
        )


def _seeds(tried: TriedExperiment) -> None:
    other = tried.experiment.changed(seed=tried.experiment.seed + 1)
    recorded = tried.train(other, ShortContext(tried.first.step)).recorded
    if recorded and repr(recorded) == repr(tried.first.recorded):  # NaN is equal
        raise SpecError(
            f"{tried.where} records the same with seed {tried.experiment.seed} and {other.seed}; seeds are replicates; "
            "draw weights and data from random numbers of the process, or by the seed"
        )


def _something(tried: TriedExperiment) -> None:
    if not tried.first.recorded:
        raise SpecError(
            f"{tried.where} records nothing in {tried.first.step} steps or {LONGEST_S:g} s; a grid compares what a run "
            "records; call run.log in the loop"
        )


EXPERIMENT_LAWS: Final[Mapping[str, tuple[str, Callable[[TriedExperiment], None]]]] = {
    "data": ("its class builds it from its data", _data),
    "records": (f"it records something in {STEPS} steps, or in {LONGEST_S:g} s", _something),
    "repeat": ("two trainings with one seed record the same", _repeat),
    "seeds": ("two seeds record different values", _seeds),
    "stop": ("a stopped and resumed training records what an undisturbed one does", _stop),
}
"""Laws of experiments by name: a sentence, and a function that raises SpecError if the law is broken."""
