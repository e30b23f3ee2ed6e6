"""Plan of a run: counts, cells left out by rules, parameters, expected time and statistical power."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, final

from grid import Grid, Planned
from runners.monitoring.trial_locations import State
from runners.output import format_count
from runners.planning.duration import Estimate, EstimateOptions, estimate
from runners.planning.power import Resolution, resolution_lines, resolutions
from runners.planning.preflight import Preflight
from runners.planning.survey import Survey, Surveyed, survey, walk
from runners.slurm.spec import Slurm
from runners.slurm.submit.resource_classes import Demands
from runners.slurm.submit.workload import plan_allocation
from store.files.layout import Layout
from store.files.trial_status import Status

_Sizes = tuple[int | None, int | None]
"""Parameters of a model: all, and those of the operator."""
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
    axes: Mapping[str, Sequence[str]]
    """The labels on each axis, by its name."""
    overrides: tuple[str, ...]
    missing: tuple[str, ...]
    """Arguments without which nothing is compared."""


class CellPlan(NamedTuple):
    """One cell of a plan."""

    grid: str
    label: str
    key: str
    """The key of its trial with the first seed."""
    parameters: int | None
    """All of the model; None if they were not counted."""
    operator_parameters: int | None


class OperatorPlan(NamedTuple):
    """One operator of a plan; where models with it differ in their parameters, one of these counts."""

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
class RunPlan:
    """Plan of some grids in a campaign. Trials that grids share are counted once."""

    root: Path
    grids: tuple[GridPlan, ...]
    cells: tuple[CellPlan, ...]
    """In the order of the spec; a cell of two grids is listed for each."""
    operators: tuple[OperatorPlan, ...]
    trials: tuple[Surveyed, ...]
    ok: int
    other_code: int
    """Finished trials that ran older code."""
    failed: int
    running: int
    queued: int
    lost: int
    unknown: int
    pending: int
    """Nobody has these and nobody will take them, as in the states before."""
    to_do: int
    estimate: Estimate
    refused: tuple[str, ...]
    """Cells or operators whose trials would fail before their first step, and why."""
    resolutions: tuple[Resolution, ...]


@final
@dataclass(frozen=True)
class PlanOptions:
    """How to plan. `parameters` counts (all, the operator's) of a trial; `seconds` says how long its training takes."""

    workers: int = 1
    slurm: Slurm | None = None
    """The request to a cluster; None: the trials run on this machine, `workers` at once."""
    retry: bool = False
    again: bool = False
    states: Mapping[str, State] = field(default_factory=dict)
    """Where the trials are by key, as far as the campaign has them; of others their files say how they ended."""
    parameters: Callable[[Any], tuple[int, int]] | None = None
    noise_from: Layout | None = None
    """A campaign whose noise counts where this one has none."""
    files: Sequence[Path] = ()
    """The spec files that define the grids, loaded before."""
    seconds: Callable[[Any], float | None] | None = None
    """Measures each model and operator without finished trials; None: measure nothing. The plan shows its errors."""


def plan_campaign(root: Path | str, grids: Sequence[Grid], options: PlanOptions | None = None) -> RunPlan:
    """Plan `grids` in the campaign at `root`, which need not exist; writes nothing.

    Raises:
        SpecError: a grid is invalid, two have the same name, a grid's measure is nothing its trials record, or the
            request to a cluster has no meaning for these trials.
    """
    options = options or PlanOptions()
    layout = Layout(Path(root).resolve())
    demands = Demands(options.slurm) if options.slurm is not None else None
    opening = Preflight(layout, retry=options.retry)
    sizes: dict[tuple[str, str], _Sizes] = {}
    listed: list[CellPlan] = []

    def add_cell(grid: str, planned: Planned) -> None:
        sizes[grid, planned.cell] = options.parameters(planned.trial) if options.parameters else (None, None)
        listed.append(CellPlan(grid, planned.label, planned.key, *sizes[grid, planned.cell]))
        opening.add_cell(grid, planned)
        if demands is not None:
            demands.add_cell(grid, planned)

    cells = walk(grids, add_cell, options.files)
    found = survey(layout, grids, cells, retry=options.retry, again=options.again)
    if options.slurm is not None and demands is not None:
        means = replace(plan_allocation(found, grids, demands, options.slurm), seconds=options.seconds)
    else:
        means = EstimateOptions(options.workers, seconds=options.seconds)
    times, plans = estimate(found, grids, means), tuple(map(_grid_plan, grids))
    by_name = {plan.name: plan for plan in plans}
    told = resolutions(layout, grids, options.noise_from)
    states = Counter(options.states.get(trial.key, _STATES[trial.status]) for trial in found.trials)
    return RunPlan(
        root=layout.root,
        grids=plans,
        cells=tuple(listed),
        operators=tuple(_operators(found, sizes)),
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
        refused=tuple(_find_refusals(times, opening)) if options.slurm is None or options.seconds is not None else (),
        resolutions=tuple(_add_hours(each, by_name[each.grid], times, len(found.to_do)) for each in told),
    )


def _add_hours(found: Resolution, grid: GridPlan, times: Estimate, to_do: int) -> Resolution:
    """Add the estimated hours of one more seed, if no finished trial gives them."""
    if found.hours is not None or times.hours is None or not to_do:
        return found
    return found._replace(hours=times.hours / (to_do - times.unknown) * grid.cells, unit=times.unit)


def _grid_plan(grid: Grid) -> GridPlan:
    header = grid.header()
    rules = tuple(Pruned(rule["reason"], rule["count"]) for rule in header["rules"])
    axes = {axis["name"]: axis["labels"] for axis in header["axes"]}
    missing = tuple(name for name in ("measure", "baseline") if header[name] is None)
    return GridPlan(grid.name, header["cells"], header["trials"], rules, axes, grid.overrides, missing)


def _find_refusals(times: Estimate, opening: Preflight) -> Iterator[str]:
    """Yield refusals found by measuring, then those found by opening the inputs."""
    yield from times.refused
    for _, label, why in opening.refusals():
        if not any(why in told for told in times.refused):
            yield f"{label}: {why}"


def _operators(found: Survey, sizes: Mapping[tuple[str, str], _Sizes]) -> Iterator[OperatorPlan]:
    """One after the other as they are first met, the smallest models first; each name is unique in its grid."""
    labels: dict[tuple[str, str], str] = {}
    cells: dict[tuple[str, str], set[str]] = {}
    counts: dict[tuple[str, str], Counter[_Sizes]] = {}
    for trial in found.trials:
        place = trial.grid, trial.operator_key
        labels[place] = trial.operator
        cells.setdefault(place, set()).add(trial.label)
        counts.setdefault(place, Counter())[sizes[trial.grid, trial.cell]] += 1
    shared = Counter((grid, label) for (grid, _), label in labels.items())
    for (grid, key), models in counts.items():
        name = labels[grid, key]
        if shared[grid, name] > 1:
            own = cells[grid, key]
            name = own.pop() if len(own) == 1 else f"{name} [{key[:6]}]"
        for size, trials in sorted(models.items()):
            yield OperatorPlan(grid, name, key, trials, *size)


SHOWN_CELLS = 10
AXIS_WIDTH = 80
"""Most characters of the labels of an axis."""


def plan_lines(plan: RunPlan) -> Iterator[str]:
    """The plan as a page of text."""
    for grid in plan.grids:
        yield f"grid {grid.name}: {format_count(grid.cells, 'cell')}, {format_count(grid.trials, 'trial')}"
        if grid.overrides:
            yield f"  overrides: {' '.join(grid.overrides)}"
        for name, labels in grid.axes.items():
            text = ", ".join(labels)
            if len(text) > AXIS_WIDTH:  # leave out the end of a long list
                text = f"{text[:AXIS_WIDTH].rpartition(', ')[0] or text[:AXIS_WIDTH]}, ... ({len(labels)} values)"
            yield f"  axis {name}: {text}"
        for rule in grid.pruned:
            yield f"  left out {format_count(rule.cells, 'cell')}: {rule.reason}"
        yield from _cell_lines([each for each in plan.cells if each.grid == grid.name])
        yield from (f"  {line}" for line in _comparison_lines(plan, grid))
    yield f"campaign {plan.root}"
    counts = {
        "done": plan.ok,
        "failed before": plan.failed,
        "running": plan.running,
        "queued": plan.queued,
        "lost": plan.lost,
        "unknown": plan.unknown,
        "pending": plan.pending,
    }
    yield "  " + ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "pending")
    if plan.other_code:
        trials = format_count(plan.other_code, "finished trial")
        yield f"  {trials} ran other code; `ablate run SPEC --rerun-stale` trains those again"
    if plan.failed:
        yield "  `ablate status` says why trials failed; `ablate run SPEC --retry` tries those again"
    yield f"  to do: {format_count(plan.to_do, 'trial')}, {plan.estimate}"
    for problem in plan.estimate.problems:
        yield f"  could not be measured: {problem}"
    for refusal in plan.refused:
        yield f"  error: trials fail before their first step: {refusal}"


def _comparison_lines(plan: RunPlan, grid: GridPlan) -> Iterator[str]:
    """Yield what the seeds of a grid can tell, or why its cells are not compared."""
    if grid.missing and grid.cells > 1:
        yield f"nothing is compared without {' and '.join(grid.missing)}, which can be added after the training"
    for each in plan.resolutions:
        if each.grid == grid.name:
            yield from resolution_lines(each)


def _cell_lines(cells: Sequence[CellPlan]) -> Iterator[str]:
    """Yield a table of the first cells: label, key of the first trial, parameters."""
    shown = cells[:SHOWN_CELLS]
    widest = max(len(each.label) for each in shown)
    counted = shown[0].parameters is not None
    yield f"    {'cell':<{widest}}  first trial" + ("  parameters  of the operator" if counted else "")
    for each in shown:
        numbers = f"  {each.parameters:>10,}  {each.operator_parameters:>15,}" if counted else ""
        yield f"    {each.label:<{widest}}  {each.key[:11]}{numbers}"
    if len(cells) > len(shown):
        yield f"    ... and {format_count(len(cells) - len(shown), 'more cell')}; --json has all"


def plan_data(plan: RunPlan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "root": str(plan.root),
        "grids": [{**each._asdict(), "pruned": [rule._asdict() for rule in each.pruned]} for each in plan.grids],
        "cells": [each._asdict() for each in plan.cells],
        "operators": [each._asdict() for each in plan.operators],
        "trials": [each._asdict() for each in plan.trials],
        "counts": {name: value for name, value in asdict(plan).items() if isinstance(value, int)},
        "estimate": plan.estimate._asdict(),
        "refused": list(plan.refused),
        "resolutions": [each.data() for each in plan.resolutions],
    }
