"""Expected duration of trials: from finished trials, else from a few measured steps, else unknown.

A cell takes the mean of its finished trials on the same kind of device. A cell without finished trials takes the mean
of its grid, scaled by FLOPs. If nothing has finished in the grid, `ablate plan --calibrate` measures five steps.
"""

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, final

from grid import Grid, Spec
from grid.durations import format_duration, format_hours
from grid.errors import SpecError
from runners.output import format_count
from runners.planning.survey import Survey, Surveyed
from runners.training.training_context import NullContext, TrainingContext, TrainingResult
from store.files.layout import Layout
from store.files.trial_status import trial_state

HOUR_S = 3600.0
MOST_COUNTED = 50
"""Combinations of model and operator whose FLOPs are counted; a grid with more is scaled by steps."""
MEASURED_STEPS: Final = 5

Device = Literal["cpu", "cuda"]
_Cell = tuple[str, str]
"""Grid and cell."""


class Estimate(NamedTuple):
    """Expected times, and their source in words."""

    trial_s: float | None
    """Seconds of all remaining trials, one after the other; None: unknown."""
    hours: float | None
    """Hours of GPUs, or of workers if no trial uses a GPU."""
    unit: Literal["GPU-h", "CPU-h"]
    wall_s: float | None
    """Seconds until the last trial ends; time in a cluster's queue is not counted."""
    workers: int
    at_once: int
    """Trials that train at the same time on all workers."""
    basis: str
    finished: int = 0
    """Finished trials that were used."""
    unknown: int = 0
    """Remaining trials of unknown duration; the times leave them out."""
    problems: tuple[str, ...] = ()
    """Operators that could not be counted or measured, and why."""
    refused: tuple[str, ...] = ()
    """Operators whose trials would be refused, and why."""

    def __str__(self) -> str:
        """Describe hours, wall time on the workers, and the source of both."""
        if self.hours is None or self.wall_s is None:
            return f"time {self.basis}"
        if not self.hours:
            return self.basis
        workers = format_count(self.workers, "worker")
        if self.at_once != self.workers:
            workers += f" with {format_count(self.at_once, 'trial')} at once"
        hours = format_hours(self.hours, self.unit)
        return f"{hours}, {format_duration(self.wall_s)} on {workers}, {self.basis}"


class PlannedWorkers(NamedTuple):
    """Workers of one class, which share some of the trials."""

    workers: int
    slots: int = 1
    """Trials side by side on one worker."""
    gpus: float | None = None
    """GPUs per trial on a cluster; None: the trials run on this machine."""
    name: str = ""

    @property
    def at_once(self) -> int:
        """Trials that train at the same time."""
        return self.workers * self.slots


@final
@dataclass(frozen=True)
class EstimateOptions:
    """Workers, and how to measure a trial."""

    workers: int = 1
    """Workers of this machine, if `pool` is None."""
    pool: Callable[[Surveyed], PlannedWorkers] | None = None
    """Returns the workers of a trial; None: those of this machine."""
    seconds: Callable[[Any], float | None] | None = None
    """Measures a few steps and returns the seconds of the whole training; None: measure nothing."""


def schedule_s(seconds: Iterable[float], slots: int) -> float:
    """Return when the last trial ends, if the longest start first, each on the slot that is free first."""
    free = [0.0] * max(1, slots)
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def _read_time(layout: Layout, key: str) -> tuple[Device, float] | None:
    """Return the device and the seconds over all attempts, or None if a part of them was not recorded."""
    attempts = trial_state(layout, key).attempts
    last = attempts[-1]
    ends = [attempt.end for attempt in attempts if attempt.end is not None]
    device: Device = "cuda" if last.start.get("device") == "cuda" else "cpu"
    if len(ends) == len(attempts):
        return device, sum(float(end["wall_s"]) for end in ends)
    if last.end is None or last.start.get("resumed_from") is not None:
        return None
    return device, float(last.end["wall_s"])  # earlier attempts were killed, and this one began anew


def estimate(found: Survey, grids: Sequence[Grid], options: EstimateOptions) -> Estimate:
    """Estimate the time of all remaining trials."""
    if not found.to_do:
        return Estimate(0.0, 0.0, "CPU-h", 0.0, options.workers, options.workers, "nothing is left to do")
    return _Estimator(found, grids, options).result()


@final
class _Estimator:
    def __init__(self, found: Survey, grids: Sequence[Grid], options: EstimateOptions) -> None:
        self._to_do, self._options = found.to_do, options
        self._finished: dict[tuple[str, Device], list[tuple[Surveyed, float]]] = {}
        """Finished trials with their seconds, by grid and device."""
        for trial in found.trials:
            known = _read_time(found.layout, trial.key) if trial.status == "ok" else None
            if known is not None and known[1] > 0:
                self._finished.setdefault((trial.grid, known[0]), []).append((trial, known[1]))
        self._problems: list[str] = []
        self._refused: list[str] = []
        self._measured: dict[tuple[str, Device], tuple[_Cell, float] | None] = {}
        self._used: set[str] = set()
        wanted = {(each.grid, each.cell) for each in found.trials}
        cells = ((grid.name, planned) for grid in grids for planned in grid.cells())
        self._examples = {(name, each.cell): each for name, each in cells if (name, each.cell) in wanted}
        models = {_model_key(planned.trial) for planned in self._examples.values()}
        self._count_flops = len(models) <= MOST_COUNTED
        self._costs: dict[_Cell, tuple[float | None, float]] = {}

    def result(self) -> Estimate:
        pool_of = self._options.pool or (lambda _: PlannedWorkers(self._options.workers))
        pools: dict[str, tuple[PlannedWorkers, list[float]]] = {}
        durations: dict[tuple[_Cell, Device], float | None] = {}
        total_s = gpu_s = 0.0
        unknown, uses_gpu = 0, False
        for trial in self._to_do:
            cell, pool = (trial.grid, trial.cell), pool_of(trial)
            example = self._examples[cell].trial
            device = _device_of(example, pool)
            uses_gpu |= device == "cuda"
            if (cell, device) not in durations:
                durations[cell, device] = self._duration(cell, device)
            _, scheduled = pools.setdefault(pool.name, (pool, []))
            seconds = durations[cell, device]
            if seconds is None:
                unknown += 1
                continue
            scheduled.append(seconds)
            total_s += seconds
            if device == "cuda":
                own = float(getattr(getattr(example, "execution", None), "gpus", 1))
                gpu_s += seconds * (own if pool.gpus is None else pool.gpus)
        known = unknown < len(self._to_do)
        return Estimate(
            total_s if known else None,
            (gpu_s if uses_gpu else total_s) / HOUR_S if known else None,
            "GPU-h" if uses_gpu else "CPU-h",
            max(schedule_s(scheduled, pool.at_once) for pool, scheduled in pools.values()) if known else None,
            workers=sum(pool.workers for pool, _ in pools.values()),
            at_once=sum(pool.at_once for pool, _ in pools.values()),
            basis=self._describe_basis(unknown),
            finished=len(self._used),
            unknown=unknown,
            problems=tuple(self._problems),
            refused=tuple(self._refused),
        )

    def _duration(self, cell: _Cell, device: Device) -> float | None:
        """Return the expected seconds of a trial of `cell`."""
        finished = self._finished.get((cell[0], device))
        if finished is None:
            return self._measure(cell, device)
        same = [each for each in finished if each[0].cell == cell[1]]
        self._used.update(trial.key for trial, _ in same or finished)
        if same:
            return sum(seconds for _, seconds in same) / len(same)
        cells = Counter((trial.grid, trial.cell) for trial, _ in finished)
        return sum(seconds for _, seconds in finished) * self._relative_cost(cell, cells)

    def _relative_cost(self, cell: _Cell, others: Mapping[_Cell, int]) -> float:
        """Return the FLOPs of a trial of `cell` per FLOP of the trials of `others`; steps if some FLOPs are unknown."""
        flops, steps = self._cost(cell)
        known = [(*self._cost(other), count) for other, count in others.items()]
        if flops and all(each for each, _, _ in known):
            return flops / sum((each or 0.0) * count for each, _, count in known)
        return steps / sum(each * count for _, each, count in known)

    def _cost(self, cell: _Cell) -> tuple[float | None, float]:
        if cell not in self._costs:
            planned, flops = self._examples[cell], None
            if self._count_flops:
                try:
                    flops = training_flops(planned.trial)
                except Exception as error:  # noqa: BLE001  # a plan shows what it can
                    self._note(planned.operator, error)
            steps = getattr(getattr(planned.trial, "training", planned.trial), "steps", 1)
            self._costs[cell] = flops, float(steps)
        return self._costs[cell]

    def _measure(self, cell: _Cell, device: Device) -> float | None:
        """Return the expected seconds from measured steps of the same model and operator."""
        planned = self._examples[cell]
        key = _model_key(planned.trial), device
        if key not in self._measured:
            measured_s = self._run_steps(planned.operator, planned.trial) if _is_here(device) else None
            self._measured[key] = None if measured_s is None else (cell, measured_s)
        known = self._measured[key]
        if known is None:
            return None
        source, seconds = known
        return seconds if source == cell else seconds * self._relative_cost(cell, {source: 1})

    def _run_steps(self, label: str, trial: Spec) -> float | None:
        try:
            return None if self._options.seconds is None else self._options.seconds(trial)
        except SpecError as error:
            self._refused.append(f"{label}: {str(error).strip()}")
        except Exception as error:  # noqa: BLE001  # a plan shows what it can
            self._note(label, error)
        return None

    def _note(self, label: str, error: Exception) -> None:
        message = str(error).strip().partition("\n")[0]
        problem = f"{label}: {type(error).__name__}{': ' if message else ''}{message}"
        if problem not in self._problems:
            self._problems.append(problem)

    def _describe_basis(self, unknown: int) -> str:
        measured = sum(each is not None for each in self._measured.values())
        parts = [format_count(len(self._used), "finished trial")] if self._used else []
        if measured:
            parts.append(f"measured steps of {format_count(measured, 'model')} (without evaluation)")
        if not parts:
            return "unknown: no trial like these has finished; `ablate plan --calibrate` measures a few steps"
        left_out = f"; {format_count(unknown, 'trial')} of unknown duration not included" if unknown else ""
        return f"from {' and '.join(parts)}{left_out}"


def training_flops(trial: Spec) -> float | None:
    """Count the FLOPs of all training steps of a `Trial`; None for another spec."""
    from runners.training.flops import Shape, count_flops
    from runners.trial import Trial

    if not isinstance(trial, Trial):
        return None
    task = trial.task
    shape = Shape(math.ceil(task.batch / trial.parts), task.length)
    step = count_flops(trial.model, trial.operators(), task.inputs, trial.execution.path, shape, training=True)
    for model, operators in task.teachers():
        step += count_flops(model, operators, task.inputs, "auto", shape, training=False)
    return step * trial.accumulate * trial.training.steps


def _model_key(trial: Any) -> str:
    """Return a key of the model and the operator; trials with the same key are measured once."""
    specs = (getattr(trial, name, None) for name in ("model", "operator"))
    return " ".join(spec.model_dump_json() for spec in specs if isinstance(spec, Spec))


def _device_of(trial: Any, pool: PlannedWorkers) -> Device:
    wanted = getattr(getattr(trial, "execution", None), "device", "cpu")
    if wanted == "auto":
        return "cuda" if (_is_here("cuda") if pool.gpus is None else pool.gpus > 0) else "cpu"
    return "cuda" if wanted == "cuda" else "cpu"


def _is_here(device: Device) -> bool:
    import torch

    return device == "cpu" or torch.cuda.is_available()


def measure_seconds(trial: Spec, train: Callable[[Any, TrainingContext], TrainingResult]) -> float | None:
    """Measure a few steps, and return the seconds of all training steps of `trial` here, without evaluation.

    None if training ends within its first step. An error of training is not caught.
    """
    timer = _StepTimer()
    train(trial, timer)
    if not timer.steps_after_first():
        return None
    (began, _), *_, (ended, _) = timer.seen  # the pace after the first step, which pays one-time costs
    return (ended - began) / timer.steps_after_first() * timer.steps


@final
class _StepTimer(NullContext):
    """A context that stops training after a few steps and stores nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int]] = []
        """Times and numbers of steps."""
        self.steps = 0
        """Steps of the whole training."""

    def progress(self, step: int, steps: int, loss: float) -> None:
        del loss
        self.steps = steps
        self.seen.append((time.monotonic(), step))

    def steps_after_first(self) -> int:
        return self.seen[-1][1] - self.seen[0][1] if self.seen else 0

    def stop_requested(self) -> bool:
        return self.steps_after_first() >= MEASURED_STEPS
