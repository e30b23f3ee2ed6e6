"""The answer of `ablate plan`: counts, cells left out by rules, parameters, expected time and statistical power."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NamedTuple, final

from pydantic import NonNegativeInt, Strict

from ablate.grid import Experiment, Grid, Planned
from ablate.grid.durations import format_hours
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Findings, group_by_method
from ablate.grid.names import shorten
from ablate.grid.own_methods import ask
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.backends.slurm.submit.resource_classes import Demands
from ablate.runners.backends.slurm.submit.workload import plan_allocation
from ablate.runners.output import format_count, line_width
from ablate.runners.planning.duration import Estimate, PlannedWorkers, estimate
from ablate.runners.planning.power import Resolution, resolution_lines, resolutions
from ablate.runners.planning.preflight import Preflight
from ablate.runners.planning.prepared_run import PreparedRun
from ablate.runners.planning.work import PEAK, UTILISATION, Work, count_seeds, count_work
from ablate.runners.planning.worklist import GridTrial
from ablate.store.files.layout import Layout
from ablate.store.state import COUNTED, State


class CellPlan(NamedTuple):
    """One cell of a plan."""

    grid: str
    label: str
    key: str
    """The key of its trial with the first seed."""
    parameters: int | None
    """All of the model; None if they were not counted."""
    operator_parameters: int | None


@final
@dataclass(frozen=True)
class RunPlan:
    """Plan of some grids in a campaign. Trials that grids share are counted once."""

    root: Path
    grids: tuple[Mapping[str, Any], ...]
    """Their headers."""
    cells: tuple[CellPlan, ...]
    """In the order of the spec; a cell of two grids is listed for each."""
    trials: tuple[GridTrial, ...]
    counts: Mapping[str, int]
    """Trials by state, as `ablate status` names them."""
    other_code: int
    """Finished trials that ran older code."""
    to_do: int
    estimate: Estimate
    work: Work | str | None
    """Work of the trials to do, if the duration of some is unknown; or why it could not be counted."""
    seed_work: Mapping[str, Work | str | None]
    """Then also that of each grid of one seed."""
    refused: tuple[str, ...]
    """Cells whose trials would fail before their first step, and why; on a cluster their files may be elsewhere."""
    resolutions: tuple[Resolution, ...]
    controls: Mapping[str, Sequence[str]]
    """Lines about the controls of each grid."""
    findings: Mapping[str, Findings]
    """Findings about the cells of each grid."""


@final
@dataclass(frozen=True)
class PlanOptions:
    """How to plan; `seconds` says how long the training of a trial takes."""

    workers: int = 1
    slurm: Slurm | None = None
    """The request to a cluster; None: the trials run on this machine, `workers` at once."""
    states: Mapping[str, State] = field(default_factory=dict)
    """Where the trials are by key, as far as the campaign has them; of others their files say how they ended."""
    parameters: bool = False
    """True to count parameters, which loads torch."""
    noise_from: Layout | None = None
    """A campaign whose noise counts where this one has none."""
    seconds: Callable[[Any], float | None] | None = None
    """Measures each model and operator without finished trials; None: measure nothing. The plan shows its errors."""


def plan_campaign(request: RunRequest, grids: Sequence[Grid], options: PlanOptions | None = None) -> RunPlan:
    """Plan a run of `grids`, whose campaign need not exist; writes nothing.

    Raises:
        SpecError: a grid is invalid, two have the same name, a grid's measure is nothing its trials record, or the
            request to a cluster has no meaning for these trials.
    """
    options = options or PlanOptions()
    layout = Layout(request.root.resolve())
    demands = Demands(options.slurm) if options.slurm is not None else None
    opening = Preflight(layout, retry=request.retry)
    planned_cells: dict[str, dict[str, Any]] = {grid.name: {} for grid in grids}
    listed: list[CellPlan] = []

    def add_cell(grid: str, planned: Planned) -> None:
        counts = count_parameters(planned.trial) if options.parameters else (None, None)
        listed.append(CellPlan(grid, planned.label, planned.key, *counts))
        opening.add_cell(grid, planned)
        planned_cells[grid][planned.label] = planned.trial
        if demands is not None:
            demands.add_cell(grid, planned)

    worklist = PreparedRun(replace(request, replace=True), grids, add_cell).list_trials()
    chosen = worklist.narrow_to(request.only, request.seeds)
    if options.slurm is not None and demands is not None:
        pool_of = plan_allocation(chosen, grids, demands, options.slurm)
    else:
        pool_of = lambda _: PlannedWorkers(options.workers)  # noqa: E731
    times = estimate(chosen, grids, pool_of, options.seconds)
    headers = tuple(grid.header() for grid in grids)
    hours = {header["grid"]: times.hours_of(header["grid"], header["cells"]) for header in headers}
    told = resolutions(layout, grids, options.noise_from)
    states = Counter(options.states.get(trial.key, trial.state) for trial in worklist.trials)
    return RunPlan(
        root=layout.root,
        grids=headers,
        cells=tuple(listed),
        trials=worklist.trials,
        counts={state: states[state] for state in COUNTED},
        other_code=worklist.other_code,
        to_do=len(chosen.to_do),
        estimate=times,
        work=count_work(chosen.to_do, grids) if times.unknown else None,
        seed_work=count_seeds(worklist, grids) if times.unknown else {},
        refused=tuple(f"{label}: {why}" for _, label, why in opening.refusals()) if options.slurm is None else (),
        resolutions=tuple(each._replace(hours=hours[each.grid], unit=times.unit) for each in told),
        controls={grid.name: tuple(_control_lines(grid, times)) for grid in grids},
        findings={name: find_warnings(cells) for name, cells in planned_cells.items()},
    )


def find_warnings(cells: Mapping[str, Experiment]) -> Findings:
    """Collect what the classes of the cells of a grid say about them."""
    findings = [_ask_findings(say_of, group) for say_of, group in group_by_method(cells, "warnings")]
    lines = [line for each in findings for line in each.lines]
    return Findings(lines, {name: value for each in findings for name, value in each.data.items()})


def _ask_findings(say_of: Callable[..., Any], cells: Mapping[str, Experiment]) -> Findings:
    """Return the findings of a class; one that fails is a line, since a plan and a run do without."""
    try:
        said = ask(say_of, Findings | tuple[str, ...], "Findings, or a list of sentences", cells)
    except SpecError as error:
        return Findings([str(error)])
    return said if isinstance(said, Findings) else Findings(said)


def count_parameters(trial: Experiment) -> tuple[int | None, int | None]:
    """Count the parameters of a trial: all, and those of its operators beyond softmax; None: it does not say."""
    count = ask(trial.parameters, Annotated[NonNegativeInt, Strict()] | None, "a whole number from 0, or None")
    return count, getattr(trial, "operator_parameters", lambda: None)()


SEEDS = 5
"""Seeds that a plan of one seed offers."""
SHOWN_CELLS = 10
AXIS_WIDTH = 80
"""Most characters of the labels of an axis."""
_NUMBERS, _SHORTEST = 46, 8
"""Characters beside the label of a cell, and the least that its label keeps."""


def plan_lines(plan: RunPlan, *, every_cell: bool = False) -> Iterator[str]:
    """The plan as a page of text; of each grid the first cells, or `every_cell`."""
    for header in plan.grids:
        yield from _grid_lines(plan, header, None if every_cell else SHOWN_CELLS)
    yield f"campaign {plan.root}"
    yield "  " + ", ".join(f"{count} {what}" for what, count in plan.counts.items() if count or what == State.PENDING)
    if plan.other_code:
        trials = format_count(plan.other_code, "finished trial")
        yield f"  {trials} ran other code; `ablate run SPEC --rerun-stale` trains those again"
    if plan.counts["failed"]:
        yield "  `ablate status` says why trials failed; code that has changed is tried again, all with --retry"
    yield f"  to do: {format_count(plan.to_do, 'trial')}, {plan.estimate}"
    for problem in plan.estimate.problems:
        yield f"  could not be measured: {problem}"
    if plan.work is not None:
        counted = isinstance(plan.work, Work)
        yield f"  estimate without a measured step: {plan.work}" if counted else f"  could not be counted: {plan.work}"
    for refusal in plan.refused:
        yield f"  error: trials fail before their first step: {refusal}"


def _grid_lines(plan: RunPlan, header: Mapping[str, Any], most: int | None) -> Iterator[str]:
    name, cells = header["grid"], header["cells"]
    yield f"grid {name}: {format_count(cells, 'cell')}, {format_count(header['trials'], 'trial')}"
    if "overrides" in header:
        yield f"  overrides: {' '.join(header['overrides'])}"
    for axis in header["axes"]:
        tuned = ", tuned: each setting of the other axes is compared at its best level" if axis.get("tune") else ""
        if tuned and len(axis["labels"]) < 3:
            tuned += "; 3 levels or more can show that the best lies inside"
        yield f"  axis {axis['name']}: {_list_labels(axis['labels'])}{tuned}"
    for rule in header["rules"]:
        yield f"  left out {format_count(rule['count'], 'cell')}: {rule['reason']}"
    yield from _cell_lines([each for each in plan.cells if each.grid == name], most)
    if len(header["seeds"]) == 1:
        yield f"  {_offer_seeds(plan, header)}"
    missing = " and ".join(what for what in ("measure", "baseline") if header[what] is None)
    if missing and cells > 1:
        yield f"  nothing is compared without {missing}, which can be added after the training"
    for each in plan.resolutions:
        if each.grid == name:
            yield from (f"  {line}" for line in resolution_lines(each))
    yield from (f"  {line}" for line in (*plan.controls[name], *plan.findings[name].lines))
    if longer := header.get("longer"):
        names = {each.cell: each.label for each in plan.trials}
        labels = ", ".join(names[cell] for cell in longer["of"])
        later = "nothing yet; once all trials have ended, `ablate run` adds a baseline and the best variant"
        yield f"  {longer['factor']} times as long: {labels or later}"


def _offer_seeds(plan: RunPlan, header: Mapping[str, Any]) -> str:
    """Say that a grid of one seed gives no verdict, and what five seeds cost."""
    (first,), cells = header["seeds"], header["cells"]
    hours, work = plan.estimate.hours_of(header["grid"], SEEDS * cells), plan.seed_work.get(header["grid"])
    cost = "" if hours is None else f", about {format_hours(hours, plan.estimate.unit)}"
    if isinstance(work, Work):
        cost = f", {format_hours(SEEDS * work.gpu_hours, 'GPU-h')} at the rate below"
    trials = format_count(SEEDS * cells, "trial")
    return f"no verdict follows from one seed: `seeds={first}..{first + SEEDS - 1}` plans {SEEDS} with {trials}{cost}"


def _list_labels(labels: Sequence[str]) -> str:
    """Join labels, without the end of a long list; a label with a comma, such as (0.9, 0.95), has brackets."""
    texts = [f"({label})" if ", " in label and not label.endswith(")") else label for label in labels]
    ends = [*accumulate(len(text) + 2 for text in texts)]
    shown = texts[: max(1, bisect_right(ends, AXIS_WIDTH + 2))]
    end = f", ... ({len(labels)} values)" if len(shown) < len(texts) else ""
    return f"{', '.join(shown)}{end}"


def _cell_lines(cells: Sequence[CellPlan], most: int | None) -> Iterator[str]:
    """Yield a table of the first `most` cells: label, first trial, parameters. Long labels lose their middle."""
    shown = cells[:most]
    labels = shorten([each.label for each in shown], max(line_width() - _NUMBERS, _SHORTEST))
    widest = max(map(len, labels))
    counted = shown[0].parameters is not None
    by_operator = shown[0].operator_parameters is not None
    heading = ("  parameters" if counted else "") + ("  of the operator" if by_operator else "")
    yield f"    {'cell':<{widest}}  first trial{heading}"
    for label, each in zip(labels, shown, strict=True):
        numbers = f"  {each.parameters:>10,}" if counted else ""
        numbers += f"  {each.operator_parameters:>15,}" if by_operator else ""
        yield f"    {label:<{widest}}  {each.key[:11]}{numbers}"
    if len(cells) > len(shown):
        yield f"    ... and {format_count(len(cells) - len(shown), 'more cell')}; --all lists them"


def _work_data(work: Work) -> dict[str, float | None]:
    return {**work._asdict(), "gpu_hours": work.gpu_hours, "peak_flops_per_s": PEAK, "utilisation": UTILISATION}


def plan_data(plan: RunPlan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "root": str(plan.root),
        "grids": [{"name": each["grid"], **each} for each in plan.grids],
        "cells": [each._asdict() for each in plan.cells],
        "trials": [each._asdict() for each in plan.trials],
        "counts": {**plan.counts, "other_code": plan.other_code, "to_do": plan.to_do},
        "estimate": plan.estimate._asdict(),
        "work": _work_data(plan.work) if isinstance(plan.work, Work) else plan.work,
        "refused": list(plan.refused),
        "resolutions": [each.data() for each in plan.resolutions],
        "controls": {name: list(lines) for name, lines in plan.controls.items()},
        "findings": {name: each.data for name, each in plan.findings.items()},
    }


def _control_lines(grid: Grid, times: Estimate) -> Iterator[str]:
    """Yield lines about the controls of a grid that compares cells, and what they cost."""
    if grid.measure is None or grid.baseline is None:
        return
    seeds, offered = len(tuple(grid.seeds)), grid.offered

    def cost(cells: int) -> str:
        hours = times.hours_of(grid.name, cells * seeds)
        duration = "" if hours is None else f", about {format_hours(hours, times.unit)}"
        return f"{format_count(cells, 'cell')}, {format_count(cells * seeds, 'trial')}{duration}"

    if offered.cells:
        yield f"controls: {cost(len(offered.cells))} of these"
    if offered.absent:
        labels = [*dict.fromkeys(offered.absent.values())]
        wanted = [] if grid.controls == "auto" else [each for each in grid.controls if isinstance(each, str)]
        code = json.dumps([*wanted, *labels], ensure_ascii=False) if grid.controls else '"auto"'
        yield f"controls that are missing: {', '.join(labels)}"
        yield f"  write Grid(..., controls={code}) to add {cost(len(offered.absent))}"
    yield from offered.unfit
