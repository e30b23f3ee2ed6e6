"""Expected duration of trials: from finished trials, else from a few measured steps, else unknown.

A cell takes the mean of its finished trials on the same kind of device. A cell without finished trials takes the mean
of its grid, scaled by FLOPs. If nothing has finished in the grid, `ablate plan --calibrate` measures five steps.
"""

import heapq
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from traceback import extract_tb
from typing import Any, Final, Literal, NamedTuple, final

from pydantic import PositiveFloat

from ablate.grid import Experiment, Grid, Planned, Spec, cell_key
from ablate.grid.durations import format_duration, format_hours
from ablate.grid.errors import AblateError, EnvironmentProblem
from ablate.grid.experiment import reference_of
from ablate.grid.names import some
from ablate.grid.own_methods import ask
from ablate.runners.output import format_count
from ablate.runners.planning.worklist import GridTrial, Worklist
from ablate.runners.processes.training_context import NullContext, TrainingContext, TrainingResult
from ablate.runners.provenance.origin import innermost_line
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import State

HOUR_S = 3600.0
MOST_COUNTED: Final = 50
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
    broken: bool = False
    """Whether code outside of `ablate` raised while it was counted or measured, as it would in training."""
    trial_hours: Mapping[str, float] = {}
    """Hours, in `unit`, of a trial by grid: the mean over its cells, finished ones too; absent if unknown."""

    def hours_of(self, grid: str, trials: int) -> float | None:
        """Return the hours of so many trials of a grid, by their mean; None: unknown."""
        each = self.trial_hours.get(grid)
        return None if each is None else each * trials

    def __str__(self) -> str:
        """Describe hours, wall time on the workers, and the source of both."""
        if not self.hours or self.wall_s is None:
            return self.basis if self.hours == 0 else f"time {self.basis}"
        workers = format_count(self.workers, "worker")
        if self.at_once != self.workers:
            workers += f" with {format_count(self.at_once, 'trial')} at once"
        return f"{format_hours(self.hours, self.unit)}, {format_duration(self.wall_s)} on {workers}, {self.basis}"


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


def schedule_s(seconds: Iterable[float], slots: int) -> float:
    """Return when the last trial ends, if the longest start first, each on the slot that is free first."""
    free = [0.0] * max(1, slots)
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def estimate(
    worklist: Worklist,
    grids: Sequence[Grid],
    pool_of: Callable[[GridTrial], PlannedWorkers],
    measure: Callable[[Any], float | None] | None = None,
) -> Estimate:
    """Estimate the time of all remaining trials.

    `pool_of` returns the workers of a trial. `measure` returns the seconds of a trial's training by measuring a few
    steps; None: measure nothing.
    """
    durations = _Durations(worklist, grids, measure)
    pools: dict[PlannedWorkers, list[float]] = defaultdict(list)
    unknown, gpu_s, uses_gpu = 0, 0.0, False
    for trial in worklist.to_do:
        pool = pool_of(trial)
        seconds, gpus = durations.cost_of(trial, pool)
        uses_gpu |= gpus is not None
        unknown += seconds is None
        pools[pool] += [] if seconds is None else [seconds]
        gpu_s += (seconds or 0.0) * (gpus or 0.0)
    trial_s = sum(map(sum, pools.values()))
    is_known = unknown < len(worklist.to_do)
    told = Estimate(0.0, 0.0, "CPU-h", 0.0, 0, 0, "nothing is left to do")
    if worklist.to_do:
        told = Estimate(
            trial_s if is_known else None,
            (gpu_s if uses_gpu else trial_s) / HOUR_S if is_known else None,
            "GPU-h" if uses_gpu else "CPU-h",
            max(schedule_s(each, pool.at_once) for pool, each in pools.items()) if is_known else None,
            workers=sum(pool.workers for pool in pools),
            at_once=sum(pool.at_once for pool in pools),
            basis=durations.basis(unknown),
            finished=durations.finished,
            unknown=unknown,
            problems=tuple(f"{some([*names], 3)}: {told}" for told, names in durations.problems.items()),
            broken=durations.broken,
        )
    hours, unit = _mean_hours(worklist, pool_of, durations)
    return told._replace(trial_hours=hours, unit=told.unit if worklist.to_do else unit)


def _mean_hours(
    worklist: Worklist, pool_of: Callable[[GridTrial], PlannedWorkers], durations: "_Durations"
) -> tuple[dict[str, float], Literal["GPU-h", "CPU-h"]]:
    """Return the mean hours of a trial by grid, over cells of known duration, and of what they are."""
    hours: dict[str, list[float]] = defaultdict(list)
    uses_gpu = False
    for trial in {(each.grid, each.cell): each for each in (*worklist.trials, *worklist.to_do)}.values():
        seconds, gpus = durations.cost_of(trial, pool_of(trial))
        uses_gpu |= gpus is not None
        if seconds is not None:
            hours[trial.grid].append(seconds * (1.0 if gpus is None else gpus) / HOUR_S)
    return {grid: sum(each) / len(each) for grid, each in hours.items()}, "GPU-h" if uses_gpu else "CPU-h"


@final
class _Durations:
    """Expected seconds of a trial of each cell."""

    def __init__(
        self, worklist: Worklist, grids: Sequence[Grid], measure: Callable[[Any], float | None] | None
    ) -> None:
        self._measure_trial = measure
        self._known: dict[tuple[str, Device], dict[_Cell, list[float]]] = defaultdict(lambda: defaultdict(list))
        """Seconds of finished trials by cell, by grid and device."""
        for trial in worklist.trials:
            time_s = _read_time(worklist.layout, trial.key) if trial.state == State.DONE else None
            if time_s is not None and time_s[1] > 0:
                self._known[trial.grid, time_s[0]][trial.grid, trial.cell].append(time_s[1])
        wanted = {(each.grid, each.cell) for each in worklist.trials}
        cells = (((grid.name, planned.cell), planned) for grid in grids for planned in grid.cells())
        self.examples: dict[_Cell, Planned] = {cell: planned for cell, planned in cells if cell in wanted}
        self._count_flops = len({model_key(each.trial) for each in self.examples.values()}) <= MOST_COUNTED
        self._measured: dict[tuple[str, Device], tuple[_Cell, float] | None] = {}
        self._seconds: dict[tuple[_Cell, Device], float | None] = {}
        self._costs: dict[_Cell, tuple[float | None, float]] = {}
        self.problems: dict[str, dict[str, None]] = {}
        """Each problem with the operators, or labels, that have it."""
        self.broken = False

    @property
    def finished(self) -> int:
        """Number of finished trials behind the durations so far."""
        groups = {(cell[0], device) for cell, device in self._seconds} & self._known.keys()
        return sum(len(each) for group in groups for each in self._known[group].values())

    def seconds(self, cell: _Cell, device: Device) -> float | None:
        """Return the expected seconds of a trial of `cell`; None: unknown."""
        if (cell, device) not in self._seconds:
            known = self._known.get((cell[0], device))
            self._seconds[cell, device] = self._measure(cell, device) if known is None else self._scale(cell, known)
        return self._seconds[cell, device]

    def cost_of(self, trial: GridTrial, pool: PlannedWorkers) -> tuple[float | None, float | None]:
        """Return the expected seconds of a trial, None if unknown, and its GPUs, None on a CPU."""
        cell = trial.grid, trial.cell
        example = self.examples[cell].trial
        device = _device_of(example, pool)
        own = float(example.execution.gpus) if pool.gpus is None else pool.gpus
        return self.seconds(cell, device), own if device == "cuda" else None

    def _scale(self, cell: _Cell, known: Mapping[_Cell, Sequence[float]]) -> float:
        """Return the mean of the cell, else that of all `known` ones scaled by FLOPs; by steps if some are unknown."""
        used = {cell: known[cell]} if cell in known else known
        total_s = sum(map(sum, used.values()))
        if used is not known:
            return total_s / len(used[cell])
        flops, steps = self._cost(cell)
        costs = [(*self._cost(other), len(each)) for other, each in known.items()]
        if flops and all(each for each, _, _ in costs):
            return total_s * flops / sum((each or 0.0) * count for each, _, count in costs)
        return total_s * steps / sum(each * count for _, each, count in costs)

    def _cost(self, cell: _Cell) -> tuple[float | None, float]:
        """Return FLOPs of one GPU, and steps of a trial."""
        if cell not in self._costs:
            planned = self.examples[cell]
            flops = self._try(count_flops, planned) if self._count_flops else None
            self._costs[cell] = flops and flops / planned.trial.execution.gpus, step_count(planned.trial)
        return self._costs[cell]

    def _measure(self, cell: _Cell, device: Device) -> float | None:
        """Measure each model and operator once; scale to its other cells."""
        planned = self.examples[cell]
        key = model_key(planned.trial), device
        if key not in self._measured:
            measure = self._measure_trial
            seconds = self._try(measure, planned) if measure is not None and _is_here(device) else None
            self._measured[key] = None if seconds is None else (cell, seconds)
        source = self._measured[key]
        return None if source is None else self._scale(cell, {source[0]: [source[1]]})

    def _try(self, question: Callable[[Any], float | None], planned: Planned) -> float | None:
        """Ask about a trial; an error is a problem of the plan, which shows what it can."""
        try:
            return question(planned.trial)
        except Exception as error:  # noqa: BLE001
            self.problems.setdefault(describe_problem(error), {})[planned.operator] = None
            self.broken |= bool(_own_place(error)) and not isinstance(error, EnvironmentProblem)
            return None

    def basis(self, unknown: int) -> str:
        """Describe the source of the durations so far, of which `unknown` are unknown."""
        measured = sum(each is not None for each in self._measured.values())
        parts = [format_count(self.finished, "finished trial")] if self.finished else []
        if measured:
            parts.append(f"measured steps of {format_count(measured, 'model')} (without evaluation)")
        if not parts:
            return "unknown: no trial like these has finished; `ablate plan --calibrate` measures a few steps"
        left_out = f"; {format_count(unknown, 'trial')} of unknown duration not included" if unknown else ""
        return f"from {' and '.join(parts)}{left_out}"


def describe_problem(error: Exception) -> str:
    """Say in a line why nothing could be measured or counted, with the place in code outside of `ablate`."""
    message = str(error).strip().partition("\n")[0]
    if isinstance(error, AblateError):
        return message
    return f"{type(error).__name__}{': ' if message else ''}{message}{_own_place(error)}"


def _own_place(error: Exception) -> str:
    """Return the last line of code that is neither ours nor installed, as ` (own.py:7)`; empty without one."""
    place = innermost_line(((each.filename, each.lineno) for each in extract_tb(error.__traceback__)), project=False)
    return place and f" ({place})"


def step_count(trial: Experiment) -> float:
    """Return the steps of a training; 1 if it has no such field."""
    return float(getattr(getattr(trial, "training", trial), "steps", 1))


def count_flops(trial: Experiment) -> float | None:
    """Count the FLOPs of a whole training; None: the experiment does not say. Raises SpecError for another answer."""
    flops: float | None = ask(trial.flops, PositiveFloat | None, "a positive number, or None")
    return flops


def _read_time(layout: Layout, key: str) -> tuple[Device, float] | None:
    """Return the device and the seconds over all attempts, or None if a part of them was not recorded."""
    attempts = trial_state(layout, key).attempts
    ends = [attempt.end for attempt in attempts if attempt.end is not None]
    if len(ends) < len(attempts):
        return None
    return "cuda" if attempts[-1].start.get("device") == "cuda" else "cpu", sum(float(end["wall_s"]) for end in ends)


def model_key(trial: Any) -> str:
    """Return a key of the model and the operator; trials with the same key are measured once."""
    if reference_of(type(trial)) is not None:
        return cell_key(trial)
    specs = (getattr(trial, name, None) for name in ("model", "operator"))
    return " ".join(spec.model_dump_json() for spec in specs if isinstance(spec, Spec))


def _device_of(trial: Experiment, pool: PlannedWorkers) -> Device:
    if trial.execution.device == "auto":
        return "cuda" if (_is_here("cuda") if pool.gpus is None else pool.gpus > 0) else "cpu"
    return trial.execution.device


def _is_here(device: Device) -> bool:
    import torch

    return device == "cpu" or torch.cuda.is_available()


def measure_seconds(trial: Experiment, train: Callable[[Any, TrainingContext], TrainingResult]) -> float | None:
    """Measure a few steps, and return the seconds of all training steps of `trial` here, without evaluation.

    None if training ends within its first step, or nobody knows how many there are. An error of training is not caught.
    """
    timer = _StepTimer()
    train(trial, timer)
    if timer.steps is None or not timer.steps_after_first():
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
        self.steps: int | None = None
        """Steps of the whole training; None: nobody knows."""

    def progress(self, step: int, steps: int | None, loss: float) -> None:
        del loss
        self.steps = steps
        self.seen.append((time.monotonic(), step))

    def steps_after_first(self) -> int:
        return self.seen[-1][1] - self.seen[0][1] if self.seen else 0

    def stop_requested(self) -> bool:
        return self.steps_after_first() >= MEASURED_STEPS
