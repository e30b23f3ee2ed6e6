"""Which knock-outs the cells of a grid get: components, all, where they differ from what they meet, finer numbers.

A number is finer if it varies along more axes than in another cell of the grid whose stage is the same apart from its
numbers. It is compared with each level that the cell meets, if one is coarser, else with the coarsest.
"""

from collections.abc import Callable, Mapping, Sequence

from ablate.grid import Measure
from ablate.training.evaluations.knockout import Knockout, find_levels, plan_knockout
from ablate.variants import Operator


def plan_cells(
    measure: Measure, baseline_of: Callable[[str], str | None], operators: Mapping[str, Sequence[Operator]]
) -> dict[str, Knockout]:
    """Return the knock-outs of each cell. A baseline meets each cell that is compared with it."""
    others: dict[str, dict[Sequence[Operator], None]] = {}
    for cell, own in operators.items():
        baseline = baseline_of(cell)
        if baseline is not None and baseline in operators and baseline != cell:
            others.setdefault(cell, {})[operators[baseline]] = None
            others.setdefault(baseline, {})[own] = None
    levels = find_levels(each for own in operators.values() for each in own)
    return {cell: plan_knockout(measure, own, others.get(cell, ()), levels) for cell, own in operators.items()}
