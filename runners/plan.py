"""What a run would do, before it does: counts, what the rules left out, parameters, and how long it takes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple, final

from grid import Grid, Spec
from runners.survey import Survey, Surveyed, survey
from store.layout import Layout
from store.status import trial_state


class Pruned(NamedTuple):
    """How many cells a rule left out."""

    reason: str
    cells: int


class GridPlan(NamedTuple):
    """One grid of a plan."""

    name: str
    cells: int
    trials: int
    pruned: tuple[Pruned, ...]


class OperatorPlan(NamedTuple):
    """One operator of a plan."""

    grid: str
    operator: str
    trials: int
    parameters: int | None
    """All of the model; None where nobody said how to count them."""
    operator_parameters: int | None


class Estimate(NamedTuple):
    """How long the trials to do take on `workers` workers."""

    seconds: float | None
    """None: unknown."""
    basis: str
    """In words: what it was taken from."""


@final
@dataclass(frozen=True)
class Plan:
    """What a run of some grids in a campaign would do; trials that grids share are counted once."""

    root: Path
    grids: tuple[GridPlan, ...]
    operators: tuple[OperatorPlan, ...]
    trials: tuple[Surveyed, ...]
    ok: int
    failed: int
    running: int
    pending: int
    to_do: int
    estimate: Estimate


@final
@dataclass(frozen=True)
class PlanOptions:
    """How to plan. `parameters` counts (all, the operator's) of a trial; `seconds` says how long a trial takes."""

    workers: int = 1
    retry: bool = False
    parameters: Callable[[Spec], tuple[int, int]] | None = None
    seconds: Callable[[Spec], float | None] | None = None
    """Asked for one trial per operator, where the campaign has no finished trial to go by."""


def plan_campaign(root: Path | str, grids: Sequence[Grid], options: PlanOptions | None = None) -> Plan:
    """Plan `grids` in the campaign at `root`, which need not exist; writes nothing.

    Raises:
        SpecError: a grid is invalid, or two have the same name.
    """
    options = options or PlanOptions()
    layout = Layout(Path(root).resolve())
    found = survey(layout, grids, retry=options.retry)
    examples = _Examples(grids)
    return Plan(
        root=layout.root,
        grids=tuple(map(_grid_plan, grids)),
        operators=tuple(_operators(found, examples, options)),
        trials=found.trials,
        ok=found.count("ok"),
        failed=found.count("failed"),
        running=found.count("running"),
        pending=found.count("pending"),
        to_do=len(found.to_do),
        estimate=_estimate(found, examples, options),
    )


def _grid_plan(grid: Grid) -> GridPlan:
    header = grid.header()
    rules = tuple(Pruned(rule["reason"], rule["count"]) for rule in header["rules"])
    return GridPlan(grid.name, header["cells"], header["trials"], rules)


@final
class _Examples:
    """The first trial of each (grid, operator), looked for when it is first needed."""

    def __init__(self, grids: Sequence[Grid]) -> None:
        self._grids = {grid.name: grid for grid in grids}
        self._found: dict[str, dict[str, Spec]] = {}

    def of(self, grid: str, operator: str) -> Spec:
        if grid not in self._found:
            first: dict[str, Spec] = {}
            for planned in self._grids[grid].cells():
                first.setdefault(planned.operator, planned.trial)
            self._found[grid] = first
        return self._found[grid][operator]


def _operators(found: Survey, examples: _Examples, options: PlanOptions) -> Iterator[OperatorPlan]:
    counts = Counter((trial.grid, trial.operator) for trial in found.trials)
    for (grid, operator), trials in counts.items():
        total, own = options.parameters(examples.of(grid, operator)) if options.parameters else (None, None)
        yield OperatorPlan(grid, operator, trials, total, own)


def _estimate(found: Survey, examples: _Examples, options: PlanOptions) -> Estimate:
    if not found.to_do:
        return Estimate(0.0, "nothing is left to do")
    known = _Durations(found)
    total = 0.0
    measured: dict[tuple[str, str], float | None] = {}
    for trial in found.to_do:
        seconds = known.of(trial)
        place = (trial.grid, trial.operator)
        if seconds is None and options.seconds is not None:
            if place not in measured:
                measured[place] = options.seconds(examples.of(*place))
            seconds = measured[place]
        if seconds is None:
            return Estimate(None, f"unknown: no trial of {trial.operator} has finished in this campaign")
        total += seconds
    workers = min(options.workers, len(found.to_do))
    return Estimate(total / workers, _basis(known.trials, len(measured)))


def _basis(finished: int, measured: int) -> str:
    parts = [f"{finished} finished trials of this campaign"] if finished else []
    parts += [f"a few steps of {measured} operators"] if measured else []
    return "from " + " and ".join(parts)


@final
class _Durations:
    """Seconds that finished trials took: of the same cell if there are any, else of the same operator, else grid."""

    def __init__(self, found: Survey) -> None:
        by_place: dict[tuple[str, ...], list[float]] = {}
        self.trials = 0
        for trial in found.trials:
            seconds = _seconds(found.layout, trial.key) if trial.status == "ok" else None
            if seconds is not None:
                self.trials += 1
                for place in _places(trial):
                    by_place.setdefault(place, []).append(seconds)
        self._medians: Mapping[tuple[str, ...], float] = {place: median(all_) for place, all_ in by_place.items()}

    def of(self, trial: Surveyed) -> float | None:
        return next((self._medians[place] for place in _places(trial) if place in self._medians), None)


def _places(trial: Surveyed) -> list[tuple[str, ...]]:
    return [("cell", trial.cell), ("operator", trial.grid, trial.operator), ("grid", trial.grid)]


def _seconds(layout: Layout, key: str) -> float | None:
    """What the whole trial took, over all its attempts; None where a part of that was not recorded."""
    attempts = trial_state(layout, key).attempts
    ended = [found.end for found in attempts if found.end is not None]
    if len(ended) == len(attempts):
        return sum(float(end["wall_s"]) for end in ended)
    last = attempts[-1]  # an attempt was killed: go by the one that finished, if it did all the work itself
    if last.end is None or last.start.get("resumed_from") is not None:
        return None
    return float(last.end["wall_s"])
