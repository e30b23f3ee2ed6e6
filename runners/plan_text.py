"""A plan for people and for programs."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from runners.estimate import Estimate, Interval
from runners.output import counted
from runners.plan import OperatorPlan, Plan
from runners.resolution import Resolution
from runners.tally import duration

SHOWN_TRIALS = 3


def plan_lines(plan: Plan) -> Iterator[str]:
    """The plan as a page of text."""
    for grid in plan.grids:
        yield f"grid {grid.name}: {counted(grid.cells, 'cell')}, {counted(grid.trials, 'trial')}"
        for rule in grid.pruned:
            yield f"  left out {counted(rule.cells, 'cell')}: {rule.reason}"
        operators = [each for each in plan.operators if each.grid == grid.name]
        widest = max((len(each.operator) for each in operators), default=0)
        for each in operators:
            trials = "trial " if each.trials == 1 else "trials"
            yield f"  {each.operator:<{widest}}  {each.trials:>6} {trials}{_parameters(each)}"
        yield from (f"  {resolution_line(each)}" for each in plan.resolutions if each.grid == grid.name)
    yield f"campaign {plan.root}"
    counts = {"done": plan.ok, "failed before": plan.failed, "running": plan.running, "pending": plan.pending}
    yield "  " + ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "pending")
    if plan.other_code:
        trials = counted(plan.other_code, "finished trial")
        yield f"  {trials} ran other code; `ablate run SPEC --again` trains those again"
    if plan.failed:
        yield "  `ablate status` says why trials failed; `ablate run SPEC --retry` tries those again"
    yield f"  to do: {counted(plan.to_do, 'trial')}, {time_line(plan.estimate)}"
    for problem in plan.estimate.problems:
        yield f"  could not be timed: {problem}"
    for trial in plan.trials[:SHOWN_TRIALS]:
        yield f"  {trial.key}  seed {trial.seed}  {trial.label}"
    if len(plan.trials) > SHOWN_TRIALS:
        yield f"  ... and {len(plan.trials) - SHOWN_TRIALS} more (--json lists all)"


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "root": str(plan.root),
        "grids": [{**each._asdict(), "pruned": [rule._asdict() for rule in each.pruned]} for each in plan.grids],
        "operators": [each._asdict() for each in plan.operators],
        "trials": [each._asdict() for each in plan.trials],
        "counts": {name: value for name, value in asdict(plan).items() if isinstance(value, int)},
        "estimate": _estimate(plan.estimate),
        "resolutions": [each.data() for each in plan.resolutions],
    }


def _parameters(plan: OperatorPlan) -> str:
    if plan.parameters is None:
        return ""
    return f"  {plan.parameters:>12,} parameters, {plan.operator_parameters:,} of them the operator's"


def time_line(found: Estimate) -> str:
    """Hours, wall time on the workers, and what they were taken from."""
    if found.hours is None or found.wall_s is None:
        return f"time {found.basis}"
    if not found.hours.median:
        return found.basis
    figures = _figures(found.hours)
    hours = f"{figures[0]} {found.unit} (80 %: {figures[1]} to {figures[2]})"
    many = f"{counted(found.workers, 'worker')}"
    if found.at_once != found.workers:
        many += f" with {counted(found.at_once, 'trial')} at once"
    wall = f"{duration(found.wall_s.median)} (80 %: {duration(found.wall_s.low)} to {duration(found.wall_s.high)})"
    return f"{hours}, {wall} on {many}, {found.basis}"


def _figures(hours: Interval) -> list[str]:
    """Hours with the digits that the smallest of them needs."""
    digits = max(0, 1 - math.floor(math.log10(hours.low))) if 0 < hours.low < 10 else 0
    return [f"{each:,.{min(digits, 6)}f}" for each in hours]


def resolution_line(found: Resolution) -> str:
    """What the seeds of a grid can tell apart, in one line."""
    said = f"{found.seeds} seed{'s' * (found.seeds > 1)} of {found.measure}"
    more = ", ".join(f"{seeds} seeds {_size(found, size)}" for seeds, size in found.by_seeds if seeds != found.seeds)
    if found.in_sd is None:
        return f"{said} tell nothing apart, a verdict needs 3; {more}"
    basis = f"power 80 %, {found.comparisons} comparison{'s' * (found.comparisons > 1)}, {_spread(found)}"
    return f"{said} tell differences above {_size(found, found.in_sd)} apart ({basis}); {more}"


def _size(found: Resolution, size: float) -> str:
    if not found.sd:
        return f"{size:.2g} SD"
    return _percent(size * found.sd) if found.scale == "log" else f"{size * found.sd:.2g}"


def _percent(log_ratio: float) -> str:
    percent = 100 * math.expm1(log_ratio)
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _spread(found: Resolution) -> str:
    if found.sd == 0:
        return f"SD of a pair 0: the {found.pairs} pairs differ alike in every seed, as if seeds changed nothing"
    if found.sd is not None:
        return f"SD of a pair {found.sd:.2g} from {found.pairs} pairs"
    if found.remark:
        return f"SD of a pair unknown: {found.remark}"
    if found.scale == "log" and found.in_sd is not None:
        return f"SD of a pair unknown: were it 10 %, above {_percent(0.1 * found.in_sd)}"
    return "SD of a pair unknown"


def _estimate(found: Estimate) -> dict[str, Any]:
    plain = found._asdict()
    return {name: value._asdict() if isinstance(value, Interval) else value for name, value in plain.items()}
