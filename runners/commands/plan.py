"""What a run would do, before it does: counts, what rules left out, parameters, how long it takes, what it can show."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, final

from grid import Grid
from runners.planning.cells import walk
from runners.planning.estimate import Estimate, Means, estimate
from runners.planning.resolution import Resolution, resolutions
from runners.planning.survey import Survey, Surveyed, survey
from runners.slurm.spec import Slurm
from runners.slurm.submitting.classes import Demands
from runners.slurm.submitting.workload import planned
from runners.tending.whereabouts import State
from store.layout import Layout
from store.status import Status

_STATES: Mapping[Status, State] = {"ok": "done", "failed": "failed", "running": "running", "pending": "pending"}


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
    """Its label; where operators of the grid share one, the label of its cell or else the beginning of its key too."""
    key: str
    trials: int
    parameters: int | None
    """All of the model; None where nobody said how to count them."""
    operator_parameters: int | None


@final
@dataclass(frozen=True)
class Plan:
    """What a run of some grids in a campaign would do; trials that grids share are counted once."""

    root: Path
    grids: tuple[GridPlan, ...]
    operators: tuple[OperatorPlan, ...]
    trials: tuple[Surveyed, ...]
    ok: int
    other_code: int
    """Of those that are ok, the ones that other code finished."""
    failed: int
    running: int
    queued: int
    lost: int
    unknown: int
    pending: int
    """Nobody has these and nobody will take them, as in the states before."""
    to_do: int
    estimate: Estimate
    resolutions: tuple[Resolution, ...]


@final
@dataclass(frozen=True)
class PlanOptions:
    """How to plan. `parameters` counts (all, the operator's) of a trial; `seconds` says how long its training takes."""

    workers: int = 1
    slurm: Slurm | None = None
    """What would be asked of a cluster; None: the trials run on this machine, `workers` at once."""
    retry: bool = False
    again: bool = False
    states: Mapping[str, State] = field(default_factory=dict)
    """Where the trials are by key, as far as the campaign has them; of others their files say how they ended."""
    parameters: Callable[[Any], tuple[int, int]] | None = None
    noise_from: Layout | None = None
    """A campaign whose noise counts where this one has none."""
    seconds: Callable[[Any], float | None] | None = None
    """Asked for a few operators, where the campaign has no finished trial to go by; None if it cannot tell.

    What it raises is told with the plan.
    """


def plan_campaign(root: Path | str, grids: Sequence[Grid], options: PlanOptions | None = None) -> Plan:
    """Plan `grids` in the campaign at `root`, which need not exist; writes nothing.

    Raises:
        SpecError: a grid is invalid, two have the same name, a grid's measure is nothing its trials record, or the
            request to a cluster has no meaning for these trials.
    """
    options = options or PlanOptions()
    layout = Layout(Path(root).resolve())
    demands = Demands(options.slurm) if options.slurm is not None else None
    cells = walk(grids, demands.look if demands is not None else None)
    found = survey(layout, grids, cells, retry=options.retry, again=options.again)
    if options.slurm is not None and demands is not None:
        means = replace(planned(found, grids, demands, options.slurm), seconds=options.seconds)
    else:
        means = Means(options.workers, seconds=options.seconds)
    times, plans = estimate(found, grids, means), tuple(map(_grid_plan, grids))
    by_name = {plan.name: plan for plan in plans}
    told = resolutions(layout, grids, options.noise_from)
    states = Counter(options.states.get(trial.key, _STATES[trial.status]) for trial in found.trials)
    return Plan(
        root=layout.root,
        grids=plans,
        operators=tuple(_operators(found, options)),
        trials=found.trials,
        ok=states["done"],
        other_code=found.other_code,
        failed=states["failed"],
        running=states["running"],
        queued=states["queued"],
        lost=states["lost"],
        unknown=states["unknown"],
        pending=states["pending"],
        to_do=len(found.to_do),
        estimate=times,
        resolutions=tuple(_timed(each, by_name[each.grid], times, len(found.to_do)) for each in told),
    )


def _timed(found: Resolution, grid: GridPlan, times: Estimate, to_do: int) -> Resolution:
    """With the hours of a further seed as estimated, where no finished trial has said them."""
    if found.hours is not None or times.hours is None or not to_do:
        return found
    return found._replace(hours=times.hours.median / to_do * grid.cells, unit=times.unit)


def _grid_plan(grid: Grid) -> GridPlan:
    header = grid.header()
    rules = tuple(Pruned(rule["reason"], rule["count"]) for rule in header["rules"])
    return GridPlan(grid.name, header["cells"], header["trials"], rules)


def _operators(found: Survey, options: PlanOptions) -> Iterator[OperatorPlan]:
    counts = Counter((trial.grid, trial.operator_key) for trial in found.trials)
    names = _names(found)
    for place, trials in counts.items():
        total, own = options.parameters(found.cells.examples[place]) if options.parameters else (None, None)
        yield OperatorPlan(place[0], names[place], place[1], trials, total, own)


def _names(found: Survey) -> dict[tuple[str, str], str]:
    """What tells the operators apart, by grid and key."""
    labels = {(trial.grid, trial.operator_key): trial.operator for trial in found.trials}
    shared = Counter((place[0], label) for place, label in labels.items())
    cells: dict[tuple[str, str], set[str]] = {place: set() for place in labels}
    for trial in found.trials:
        cells[trial.grid, trial.operator_key].add(trial.label)
    return {
        place: label if shared[place[0], label] == 1 else _told_apart(label, place[1], cells[place])
        for place, label in labels.items()
    }


def _told_apart(label: str, key: str, cells: set[str]) -> str:
    return next(iter(cells)) if len(cells) == 1 else f"{label} [{key[:6]}]"
