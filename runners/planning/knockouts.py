"""Which knock-outs the cells of a grid get: their components, all, and where they differ from what they meet."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ablate.grid import Grid

if TYPE_CHECKING:
    from ablate.runners.evaluations.knockout import Knockout
    from ablate.variants import Operator


def plan_knockouts(grid: Grid, operators: "Mapping[str, Sequence[Operator]]") -> "dict[str, Knockout]":
    """Return the knock-outs of each cell of `grid` that has any; `operators` are those of its layers, by cell.

    A baseline differs from each cell that is compared with it.
    """
    from ablate.runners.evaluations.knockout import plan_knockout  # here: grids without a Trial need no torch

    if grid.measure is None or not operators:
        return {}
    counts = grid.enumeration
    others: dict[str, dict[Sequence[Operator], None]] = {}
    for cell, own in operators.items():
        baseline = counts.baselines.get(cell, counts.baseline)
        if baseline is not None and baseline != cell:
            others.setdefault(cell, {})[operators[baseline]] = None
            others.setdefault(baseline, {})[own] = None
    planned = {cell: plan_knockout(grid.measure, own, others.get(cell, ())) for cell, own in operators.items()}
    return {cell: asked for cell, asked in planned.items() if asked is not None}
