"""How long trials will take: their work on the device, corrected by trials that have finished and by a few steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Literal, NamedTuple, final

import numpy as np

from grid import Grid, Spec
from grid.errors import SpecError
from runners.planning import posterior
from runners.planning.makespan import wall_s
from runners.planning.posterior import BY_WORK, UNKNOWN_WORK, Floats, Left, Path, Seen, Totals, totals
from runners.planning.roofline import Place, Prior, device_at, is_here, place_of, prior
from runners.planning.survey import Survey, Surveyed
from store.files.layout import Layout
from store.files.trial_status import trial_state

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
    """Until the last trial is done, shared by the workers; time in the queue of a cluster is not counted."""
    workers: int
    at_once: int
    """Trials at work at once on all of these."""
    basis: str
    finished: int = 0
    """Trials of the campaign that were used."""
    problems: tuple[str, ...] = ()
    """Which operators could not be counted or timed, and why."""
    refused: tuple[str, ...] = ()
    """Of which operators a trial was refused when it was tried for a few steps, and why: it would be in a run, too."""


class Pool(NamedTuple):
    """Workers that are alike, and share some of the trials."""

    workers: int
    slots: int = 1
    """Trials side by side on one worker."""
    gpus: float | None = None
    """Of a cluster, the GPUs that a trial at work occupies: those of a worker by the trials side by side on it. None:
    the trials run here."""
    gpu: str | None = None
    """Which GPU, such as "h100"; None: this machine's."""
    name: str = ""

    @property
    def at_once(self) -> int:
        """Trials at work at once."""
        return self.workers * self.slots


@final
@dataclass(frozen=True)
class Means:
    """What an estimate goes by. `workers` trials run at once."""

    workers: int = 1
    """Of this machine, where no pool is given."""
    pool: Callable[[Surveyed], Pool] | None = None
    """Whose workers a trial is for; None: those of this machine."""
    seconds: Callable[[Any], float | None] | None = None
    """Times the training of a trial."""
    prior: Callable[[Any, Place, str | None], Prior | None] | None = None
    """What a trial should take at a place with such a GPU; None: its roofline."""

    def pool_of(self, trial: Surveyed) -> Pool:
        """The workers that `trial` is for."""
        return Pool(self.workers) if self.pool is None else self.pool(trial)


def by_roofline(trial: Any, place: Place, gpu: str | None) -> Prior | None:
    """The prior of `trial`; None where nobody can count its work."""
    return prior(trial, device_at(place, gpu))


def estimate(found: Survey, grids: Sequence[Grid], means: Means) -> Estimate:
    """The time that the trials to do take, with all that is known of them."""
    if not found.to_do:
        nothing = Interval(0.0, 0.0, 0.0)
        return Estimate(nothing, nothing, "CPU-h", nothing, means.workers, means.workers, "nothing is left to do")
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
        self._refused: list[str] = []
        self._finished = finished_trials(found)
        self._places: dict[_Cell, Place] = {}
        self._gpus: dict[_Cell, float] = {}
        """That a trial of the cell occupies."""
        self._priors = self._counted(grids)
        known = [math.log(each.seconds) for each in self._priors.values() if each is not None]
        self._known = bool(known)
        self._usual = Prior(*2 * (math.exp(mean(known)) if known else 1.0,))

    def result(self) -> Estimate:
        seen = [self._seen(each) for each in self._finished]
        operators = {(trial.grid, trial.operator_key): trial for trial in self._found.to_do}
        timed = self._stopwatch(operators)
        pools = {pool.name: pool for pool in map(self._means.pool_of, self._found.to_do)}
        unit: Literal["GPU-h", "CPU-h"] = "GPU-h" if any(self._gpus.values()) else "CPU-h"
        workers, at_once = sum(pool.workers for pool in pools.values()), sum(pool.at_once for pool in pools.values())
        if not (seen or timed or self._known):
            unknown = "unknown: no trial like these has finished in this campaign"
            told = tuple(self._problems), tuple(self._refused)
            return Estimate(None, None, unit, None, workers, at_once, unknown, 0, *told)
        scatter, uncounted = (BY_WORK, self._uncounted()) if self._known else (UNKNOWN_WORK, frozenset[Path]())
        drawn = totals([*seen, *timed], self._left(), scatter, uncounted=uncounted)
        hours = drawn.gpu_s if unit == "GPU-h" else drawn.trial_s
        return Estimate(
            Interval(*posterior.interval(drawn.trial_s)),
            Interval(*posterior.interval(hours)).times(1 / HOUR_S),
            unit,
            wall_s=Interval(*posterior.interval(_wall_s(drawn, pools))),
            workers=workers,
            at_once=at_once,
            basis=self._basis(len(timed), len(operators)),
            finished=len(seen),
            problems=tuple(self._problems),
            refused=tuple(self._refused),
        )

    def _basis(self, timed: int, operators: int) -> str:
        parts = [f"{len(self._finished)} finished trial{'s' * (len(self._finished) > 1)}"] if self._finished else []
        if timed:
            parts.append(f"a few steps of {timed} of {operators} operators (without evaluation)")
        if self._known:
            parts.append("a roofline prior")
        return "from " + (f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts))

    def _counted(self, grids: Sequence[Grid]) -> Mapping[tuple[_Cell, Place], Prior | None]:
        """The prior of every cell that matters, at its target and wherever its trials ran."""
        to_do = {(trial.grid, trial.cell): self._means.pool_of(trial) for trial in self._found.to_do}
        ran: dict[_Cell, dict[Place, Pool]] = {}
        for each in self._finished:
            ran.setdefault((each.trial.grid, each.trial.cell), {})[each.place] = self._means.pool_of(each.trial)
        found: dict[tuple[_Cell, Place], Prior | None] = {}
        for grid in grids:
            for planned in grid.cells():
                cell = grid.name, planned.cell
                wanted = dict(ran.get(cell, {}))
                if (pool := to_do.get(cell)) is not None:
                    place = self._places[cell] = place_of(planned.trial, cluster_gpus=pool.gpus)
                    self._gpus[cell] = _gpus(planned.trial, place, pool)
                    wanted[place] = pool
                for place, at in wanted.items():
                    found[cell, place] = self._told(planned.operator, planned.trial, place, at)
        return found

    def _told(self, label: str, trial: Spec, place: Place, pool: Pool) -> Prior | None:
        try:
            return (self._means.prior or by_roofline)(trial, place, pool.gpu)
        except Exception as error:  # noqa: BLE001  # told: a plan shows what it can
            problem = _sentence(label, error)
            if problem not in self._problems:
                self._problems.append(problem)
            return None

    def _prior(self, cell: _Cell, place: Place) -> Prior:
        """Of what could not be counted, that of a usual trial."""
        return self._priors[cell, place] or self._usual

    def _uncounted(self) -> frozenset[Path]:
        """Operators of which a cell could not be counted."""
        names = ((each.trial, each.place) for each in self._finished)
        every = [*names, *((trial, self._places[trial.grid, trial.cell]) for trial in self._found.to_do)]
        return frozenset(
            self._path(trial, place)[:-1]
            for trial, place in every
            if self._priors[(trial.grid, trial.cell), place] is None
        )

    def _path(self, trial: Surveyed, place: Place) -> tuple[str, str, str, str]:
        return f"{place.device} {place.threads}", trial.grid, trial.operator_key, trial.cell

    def _seen(self, each: Finished) -> Seen:
        expected = self._prior((each.trial.grid, each.trial.cell), each.place)
        return Seen(self._path(each.trial, each.place), math.log(each.seconds / expected.seconds))

    def _left(self) -> list[Left]:
        counts: dict[tuple[_Cell, str], int] = {}
        trials: dict[tuple[_Cell, str], Surveyed] = {}
        for trial in self._found.to_do:
            some = (trial.grid, trial.cell), self._means.pool_of(trial).name
            counts[some] = counts.get(some, 0) + 1
            trials[some] = trial
        return [self._remaining(trials[some], count, some[1]) for some, count in counts.items()]

    def _remaining(self, trial: Surveyed, count: int, pool: str) -> Left:
        cell = trial.grid, trial.cell
        place = self._places[cell]
        return Left(self._path(trial, place), self._prior(cell, place).seconds, count, self._gpus[cell], pool)

    def _stopwatch(self, operators: Mapping[tuple[str, str], Surveyed]) -> list[Seen]:
        """A few operators of grids of which nothing has finished where they will run, timed."""
        seconds = self._means.seconds
        if seconds is None:
            return []
        gone_by = {(each.trial.grid, each.place) for each in self._finished}
        places = {operator: self._places[trial.grid, trial.cell] for operator, trial in operators.items()}
        unseen = [
            operator
            for operator in sorted(operators)
            if (operator[0], places[operator]) not in gone_by and is_here(places[operator])
        ]
        timed: list[Seen] = []
        for operator in unseen[:: max(1, -(-len(unseen) // MOST_TIMED))]:
            trial, place, example = operators[operator], places[operator], self._found.cells.examples[operator]
            try:
                took = seconds(example)
            except SpecError as error:
                self._refused.append(f"{trial.operator}: {str(error).strip()}")
                continue
            except Exception as error:  # noqa: BLE001  # told: a plan shows what it can
                self._problems.append(_sentence(trial.operator, error))
                continue
            if took:
                expected = self._told(trial.operator, example, place, self._means.pool_of(trial)) or self._usual
                path = self._path(trial._replace(cell="a few steps"), place)
                timed.append(Seen(path, math.log(took / expected.training_s), timed=True))
        return timed


def _gpus(trial: Spec, place: Place, pool: Pool) -> float:
    """GPUs that `trial` occupies."""
    if place.device == "cpu":
        return 0.0
    return pool.gpus if pool.gpus is not None else float(getattr(getattr(trial, "execution", None), "gpus", 1))


def _wall_s(drawn: Totals, pools: Mapping[str, Pool]) -> Floats:
    """Draws of the seconds until the pool that takes longest is done."""
    walls = [wall_s(pooled, pools[name].at_once, drawn.noise) for name, pooled in drawn.pools.items()]
    return np.asarray(np.max(walls, axis=0))


def _sentence(label: str, error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return f"{label}: {type(error).__name__}{': ' if said else ''}{said}"
