"""What a run of a grid would do, before it does: cells, what rules left out, parameters, what is done, how long."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from grid import Grid, Spec
from runners.estimate import Durations, Estimate, estimate
from runners.survey import Surveyed, survey
from runners.tally import duration
from store.layout import Layout

_LINES = 24
"""Cells or operators that are listed one by one for people; `Plan.data` has all."""

Count = Callable[[Spec], tuple[int, int]]
"""Parameters of a trial: all, and the operator's own."""


class Pruned(NamedTuple):
    """How many cells a rule left out."""

    reason: str
    cells: int


class CellPlan(NamedTuple):
    """One cell: its trials by what they are now."""

    key: str
    label: str
    operator: str
    trials: int
    ok: int
    failed: int
    running: int


class OperatorPlan(NamedTuple):
    """One operator of the grid; parameters are None where nobody said how to count them."""

    operator: str
    trials: int
    parameters: int | None
    operator_parameters: int | None


@final
@dataclass(frozen=True)
class Plan:
    """What a run of one grid in a campaign would do."""

    grid: str
    campaign: str
    cells: tuple[CellPlan, ...]
    seeds: tuple[int, ...]
    baseline: str | None
    pruned: tuple[Pruned, ...]
    operators: tuple[OperatorPlan, ...]
    trials: int
    ok: int
    failed: int
    running: int
    pending: int
    to_do: int
    workers: int
    estimate: Estimate

    def data(self) -> dict[str, Any]:
        """The plan as plain JSON data."""
        return {
            **asdict(self),
            "cells": [cell._asdict() for cell in self.cells],
            "pruned": [rule._asdict() for rule in self.pruned],
            "operators": [operator._asdict() for operator in self.operators],
            "estimate": self.estimate._asdict(),
        }


@final
@dataclass(frozen=True)
class PlanOptions:
    """How to plan."""

    workers: int = 1
    retry: bool = False
    parameters: Count | None = None
    seconds: Callable[[Spec], float | None] | None = None
    """Asked how long a trial takes, for a few operators, where the campaign has no finished trial to go by."""


def make_plan(grid: Grid, root: Path | str, options: PlanOptions | None = None) -> Plan:
    """Plan `grid` in the campaign at `root`, which need not exist; writes nothing.

    Without `options`, parameters are counted and a few steps are timed as a run on this computer would do them.

    Raises:
        SpecError: the grid is invalid.
    """
    options = options or default_options()
    layout = Layout(Path(root).resolve())
    found = survey(layout, [grid], retry=options.retry)
    header = grid.header()
    examples = first_trials(grid)
    return Plan(
        grid=grid.name,
        campaign=str(layout.root),
        cells=tuple(_cells(found.trials)),
        seeds=tuple(header["seeds"]),
        baseline=header["baseline"],
        pruned=tuple(Pruned(rule["reason"], rule["count"]) for rule in header["rules"]),
        operators=tuple(_operators(found.trials, examples, options.parameters)),
        trials=len(found.trials),
        ok=found.count("ok"),
        failed=found.count("failed"),
        running=found.count("running"),
        pending=found.count("pending"),
        to_do=len(found.to_do),
        workers=options.workers,
        estimate=estimate(found.to_do, Durations(found), examples, options.seconds).shared_by(options.workers),
    )


def default_options() -> PlanOptions:
    """Options for trials of this project on this computer."""
    from runners.machines.cores import cores
    from runners.stopwatch import seconds_of
    from runners.training import train
    from runners.trial import Trial, parameters

    def count(trial: Spec) -> tuple[int, int]:
        assert isinstance(trial, Trial)
        return parameters(trial)

    return PlanOptions(workers=cores(), parameters=count, seconds=lambda trial: seconds_of(trial, train))


def first_trials(grid: Grid) -> dict[str, Spec]:
    """One trial of each operator of the grid."""
    found: dict[str, Spec] = {}
    for planned in grid.cells():
        found.setdefault(planned.operator, planned.trial)
    return found


def _cells(trials: tuple[Surveyed, ...]) -> Iterator[CellPlan]:
    members: dict[str, list[Surveyed]] = {}
    for trial in trials:
        members.setdefault(trial.cell, []).append(trial)
    for key, found in sorted(members.items(), key=lambda cell: cell[1][0].label):
        count = [trial.status for trial in found].count
        yield CellPlan(
            key, found[0].label, found[0].operator, len(found), count("ok"), count("failed"), count("running")
        )


def _operators(trials: tuple[Surveyed, ...], examples: dict[str, Spec], count: Count | None) -> Iterator[OperatorPlan]:
    names = [trial.operator for trial in trials]
    for operator, example in sorted(examples.items()):
        total, own = count(example) if count else (None, None)
        yield OperatorPlan(operator, names.count(operator), total, own)


def plan_lines(plan: Plan) -> list[str]:
    """The plan for people."""
    head = f"{plan.grid}: {len(plan.cells)} cells x {len(plan.seeds)} seeds = {plan.trials} trials in {plan.campaign}"
    done = {"done": plan.ok, "failed": plan.failed, "running": plan.running, "to do": plan.to_do}
    lines = [head, "  " + ", ".join(f"{count} {what}" for what, count in done.items())]
    lines += [f"  left out {rule.cells} cells: {rule.reason}" for rule in plan.pruned]
    lines += _shortened([_cell_line(plan, cell) for cell in plan.cells], "cells")
    lines += _shortened(
        [_operator_line(found) for found in plan.operators if found.parameters is not None], "operators"
    )
    return [*lines, f"  time: {_time(plan)}"]


def _cell_line(plan: Plan, cell: CellPlan) -> str:
    baseline = "  baseline" if cell.key == plan.baseline else ""
    failed = f", {cell.failed} failed" if cell.failed else ""
    return f"  {cell.key[:12]}  {cell.ok}/{cell.trials} done{failed}  {cell.label}{baseline}"


def _operator_line(found: OperatorPlan) -> str:
    return f"  {found.parameters:,} parameters, {found.operator_parameters:,} of them the operator's: {found.operator}"


def _shortened(lines: list[str], what: str) -> list[str]:
    if len(lines) <= _LINES:
        return lines
    return [*lines[:_LINES], f"  ... and {len(lines) - _LINES} more {what}; --json lists all"]


def _time(plan: Plan) -> str:
    if plan.estimate.seconds is None:
        return plan.estimate.basis
    return f"about {duration(plan.estimate.seconds)} on {plan.workers} workers ({plan.estimate.basis})"
