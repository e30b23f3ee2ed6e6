"""How long trials will take: their work on the device, corrected by trials that have finished and by a few steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Literal, NamedTuple, final

from grid import Grid, Spec
from runners import posterior
from runners.posterior import BY_WORK, UNKNOWN_WORK, Left, Seen, totals
from runners.roofline import Place, Prior, device_at, is_here, place_of, prior
from runners.survey import Survey, Surveyed
from store.layout import Layout
from store.status import trial_state

MOST_TIMED = 4
"""Operators that are timed at most: a plan is quick, also for a grid of hundreds."""

HOUR_S = 3600.0


class Interval(NamedTuple):
    """The median of what may be, and an interval that holds it with 80 %."""

    median: float
    low: float
    high: float

    def times(self, factor: float) -> "Interval":
        """The same in other units."""
        return Interval(*(factor * each for each in self))


class Estimate(NamedTuple):
    """Times, and in words what they were taken from."""

    trial_s: Interval | None
    """Seconds of all remaining trials, one after the other; None: unknown."""
    hours: Interval | None
    """Of a GPU, or of a worker where none has one."""
    unit: Literal["GPU-h", "CPU-h"]
    wall_s: Interval | None
    """The trials shared by the workers."""
    workers: int
    """Trials at work at once."""
    basis: str
    finished: int = 0
    """Trials of the campaign that were gone by."""
    problems: tuple[str, ...] = ()
    """Which operators could not be counted or timed, and why."""


@final
@dataclass(frozen=True)
class Means:
    """What an estimate goes by. `workers` trials run at once."""

    workers: int = 1
    gpus_per_worker: float | None = None
    """Of a cluster, the GPUs that a trial at work occupies: those of a worker by the trials side by side on it. None:
    the trials run here."""
    gpu: str | None = None
    """Which GPU, such as "h100"; None: this machine's."""
    seconds: Callable[[Any], float | None] | None = None
    """Times the training of a trial."""
    prior: Callable[[Any, Place, str | None], Prior | None] | None = None
    """What a trial should take at a place with such a GPU; None: its roofline."""


def by_roofline(trial: Any, place: Place, gpu: str | None) -> Prior | None:
    """The prior of `trial`; None where nobody can count its work."""
    return prior(trial, device_at(place, gpu))


def estimate(found: Survey, grids: Sequence[Grid], means: Means) -> Estimate:
    """The time that the trials to do take, with all that is known of them."""
    if not found.to_do:
        nothing = Interval(0.0, 0.0, 0.0)
        return Estimate(nothing, nothing, "CPU-h", nothing, means.workers, "nothing is left to do")
    return _Estimator(found, grids, means).result()


class Finished(NamedTuple):
    """A trial that is ok, with the time it took in all its attempts."""

    trial: Surveyed
    place: Place
    seconds: float


def finished_trials(found: Survey) -> list[Finished]:
    """Those whose time is known."""
    took = ((trial, _took(found.layout, trial.key)) for trial in found.trials if trial.status == "ok")
    return [Finished(trial, *known) for trial, known in took if known is not None and known[1] > 0]


def _took(layout: Layout, key: str) -> tuple[Place, float] | None:
    """Where the trial ran, and how long over all its attempts; None where a part of that was not recorded."""
    attempts = trial_state(layout, key).attempts
    last = attempts[-1]
    ended = [found.end for found in attempts if found.end is not None]
    place = Place("cuda" if last.start.get("device") == "cuda" else "cpu", int(last.start.get("threads") or 1))
    if len(ended) == len(attempts):
        return place, sum(float(end["wall_s"]) for end in ended)
    if last.end is None or last.start.get("resumed_from") is not None:
        return None  # an attempt was killed: go by the one that finished, if it did all the work itself
    return place, float(last.end["wall_s"])


_Cell = tuple[str, str]
"""Grid and cell."""


@final
class _Estimator:
    """One estimate in the making."""

    def __init__(self, found: Survey, grids: Sequence[Grid], means: Means) -> None:
        self._found, self._means = found, means
        self._problems: list[str] = []
        self._finished = finished_trials(found)
        self._places = {place: self._target(spec) for place, spec in found.cells.examples.items()}
        self._priors = self._counted(grids)
        known = [math.log(each.seconds) for each in self._priors.values() if each is not None]
        self._known = bool(known)
        self._usual = Prior(*2 * (math.exp(mean(known)) if known else 1.0,))

    def result(self) -> Estimate:
        seen = [self._seen(each) for each in self._finished]
        operators = {(trial.grid, trial.operator_key): trial for trial in self._found.to_do}
        timed = self._stopwatch(operators)
        unit: Literal["GPU-h", "CPU-h"] = "GPU-h" if any(self._gpus(each) for each in operators) else "CPU-h"
        basis = self._basis(len(timed), len(operators))
        if not (seen or timed or self._known):
            unknown = "unknown: no trial like these has finished in this campaign"
            return Estimate(None, None, unit, None, self._means.workers, unknown, 0, tuple(self._problems))
        drawn = totals([*seen, *timed], self._left(), BY_WORK if self._known else UNKNOWN_WORK)
        trial_s = Interval(*posterior.interval(drawn.trial_s))
        gpu_s = Interval(*posterior.interval(drawn.gpu_s))
        hours = (gpu_s if unit == "GPU-h" else trial_s).times(1 / HOUR_S)
        shared = min(self._means.workers, len(self._found.to_do))
        return Estimate(
            trial_s,
            hours,
            unit,
            wall_s=trial_s.times(1 / shared),
            workers=self._means.workers,
            basis=basis,
            finished=len(seen),
            problems=tuple(self._problems),
        )

    def _basis(self, timed: int, operators: int) -> str:
        parts = [f"{len(self._finished)} finished trial{'s' * (len(self._finished) > 1)}"] if self._finished else []
        if timed:
            parts.append(f"a few steps of {timed} of {operators} operators (without evaluation)")
        if self._known:
            parts.append("a roofline prior")
        return "from " + (f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts))

    def _target(self, spec: Spec) -> Place:
        return place_of(spec, cluster_gpus=self._means.gpus_per_worker)

    def _gpus(self, operator: tuple[str, str]) -> float:
        """GPUs that a trial of this grid and operator occupies."""
        if self._places[operator].device == "cpu":
            return 0.0
        if self._means.gpus_per_worker is not None:
            return self._means.gpus_per_worker
        execution = getattr(self._found.cells.examples[operator], "execution", None)
        return float(getattr(execution, "gpus", 1))

    def _counted(self, grids: Sequence[Grid]) -> Mapping[tuple[_Cell, Place], Prior | None]:
        """The prior of every cell that matters, at its target and wherever its trials ran."""
        wanted: dict[_Cell, dict[Place, None]] = {}
        for trial in self._found.to_do:
            wanted.setdefault((trial.grid, trial.cell), {})[self._places[trial.grid, trial.operator_key]] = None
        for each in self._finished:
            wanted.setdefault((each.trial.grid, each.trial.cell), {})[each.place] = None
        found: dict[tuple[_Cell, Place], Prior | None] = {}
        for grid in grids:
            for planned in grid.cells():
                for place in wanted.get((grid.name, planned.cell), ()):
                    found[(grid.name, planned.cell), place] = self._told(planned.operator, planned.trial, place)
        return found

    def _told(self, label: str, trial: Spec, place: Place) -> Prior | None:
        try:
            return (self._means.prior or by_roofline)(trial, place, self._means.gpu)
        except Exception as error:  # noqa: BLE001  # told: a plan shows what it can
            problem = _sentence(label, error)
            if problem not in self._problems:
                self._problems.append(problem)
            return None

    def _prior(self, cell: _Cell, place: Place) -> Prior:
        """Of what could not be counted, that of a usual trial."""
        return self._priors[cell, place] or self._usual

    def _path(self, trial: Surveyed, place: Place) -> tuple[str, str, str, str]:
        return f"{place.device} {place.threads}", trial.grid, trial.operator_key, trial.cell

    def _seen(self, each: Finished) -> Seen:
        expected = self._prior((each.trial.grid, each.trial.cell), each.place)
        return Seen(self._path(each.trial, each.place), math.log(each.seconds / expected.seconds))

    def _left(self) -> list[Left]:
        counts: dict[_Cell, int] = {}
        trials: dict[_Cell, Surveyed] = {}
        for trial in self._found.to_do:
            cell = trial.grid, trial.cell
            counts[cell] = counts.get(cell, 0) + 1
            trials[cell] = trial
        return [self._remaining(trial, counts[cell]) for cell, trial in trials.items()]

    def _remaining(self, trial: Surveyed, count: int) -> Left:
        operator = trial.grid, trial.operator_key
        place = self._places[operator]
        seconds = self._prior((trial.grid, trial.cell), place).seconds
        return Left(self._path(trial, place), seconds, count, self._gpus(operator))

    def _stopwatch(self, operators: Mapping[tuple[str, str], Surveyed]) -> list[Seen]:
        """A few operators of grids of which nothing has finished where they will run, timed."""
        seconds = self._means.seconds
        if seconds is None:
            return []
        gone_by = {(each.trial.grid, each.place) for each in self._finished}
        unseen = [
            operator
            for operator in sorted(operators)
            if (operator[0], self._places[operator]) not in gone_by and is_here(self._places[operator])
        ]
        timed: list[Seen] = []
        for operator in unseen[:: max(1, -(-len(unseen) // MOST_TIMED))]:
            trial, place, example = operators[operator], self._places[operator], self._found.cells.examples[operator]
            try:
                took = seconds(example)
            except Exception as error:  # noqa: BLE001  # told: a plan shows what it can
                self._problems.append(_sentence(trial.operator, error))
                continue
            if took:
                expected = self._told(trial.operator, example, place) or self._usual
                path = self._path(trial._replace(cell="a few steps"), place)
                timed.append(Seen(path, math.log(took / expected.training_s), timed=True))
        return timed


def _sentence(label: str, error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return f"{label}: {type(error).__name__}{': ' if said else ''}{said}"
