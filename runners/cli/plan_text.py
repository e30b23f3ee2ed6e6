"""A plan for people and for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from runners.cli.plan import OperatorPlan, RunPlan
from runners.output import format_count
from runners.planning.forecast_text import resolution_lines, time_line

SHOWN_TRIALS = 3


def plan_lines(plan: RunPlan) -> Iterator[str]:
    """The plan as a page of text."""
    for grid in plan.grids:
        yield f"grid {grid.name}: {format_count(grid.cells, 'cell')}, {format_count(grid.trials, 'trial')}"
        for rule in grid.pruned:
            yield f"  left out {format_count(rule.cells, 'cell')}: {rule.reason}"
        operators = [each for each in plan.operators if each.grid == grid.name]
        widest = max((len(each.operator) for each in operators), default=0)
        for each in operators:
            trials = "trial " if each.trials == 1 else "trials"
            yield f"  {each.operator:<{widest}}  {each.trials:>6} {trials}{_parameters(each)}"
        found = [each for each in plan.resolutions if each.grid == grid.name]
        yield from (f"  {line}" for each in found for line in resolution_lines(each))
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
        yield f"  {trials} ran other code; `ablate run SPEC --again` trains those again"
    if plan.failed:
        yield "  `ablate status` says why trials failed; `ablate run SPEC --retry` tries those again"
    yield f"  to do: {format_count(plan.to_do, 'trial')}, {time_line(plan.estimate)}"
    for problem in plan.estimate.problems:
        yield f"  could not be measured: {problem}"
    for refusal in plan.refused:
        yield f"  error: trials fail before their first step: {refusal}"
    for trial in plan.trials[:SHOWN_TRIALS]:
        yield f"  {trial.key}  seed {trial.seed}  {trial.label}"
    if len(plan.trials) > SHOWN_TRIALS:
        yield f"  ... and {len(plan.trials) - SHOWN_TRIALS} more (--json lists all)"


def plan_data(plan: RunPlan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "root": str(plan.root),
        "grids": [{**each._asdict(), "pruned": [rule._asdict() for rule in each.pruned]} for each in plan.grids],
        "operators": [each._asdict() for each in plan.operators],
        "trials": [each._asdict() for each in plan.trials],
        "counts": {name: value for name, value in asdict(plan).items() if isinstance(value, int)},
        "estimate": plan.estimate._asdict(),
        "refused": list(plan.refused),
        "resolutions": [each.data() for each in plan.resolutions],
    }


def _parameters(plan: OperatorPlan) -> str:
    if plan.parameters is None:
        return ""
    return f"  {plan.parameters:>12,} parameters, {plan.operator_parameters:,} of them the operator's"
