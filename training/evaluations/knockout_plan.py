"""Which knock-outs the cells of a grid get: components, all, where they differ from what they meet, finer numbers.

A number is finer if it varies along more axes than in another cell of the grid whose stage is the same apart from its
numbers. It is compared with each level that the cell meets, if one is coarser, else with the coarsest.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ablate.grid import Measure
from ablate.training.evaluations.knockout import Knockout
from ablate.variants import Operator
from ablate.variants.granularity import Axis, name_axes
from ablate.variants.model.knockout import STAGES, Component, components, differing_stages
from ablate.variants.number import ByDepth
from ablate.variants.stages.stage import Stage

Axes = tuple[tuple[Axis, ...], ...]
"""The axes of every number of a stage."""
Levels = Mapping[tuple[Any, ...], set[Axes]]
"""Granularities of a stage, by all else that it is."""


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


def plan_knockout(
    measure: Measure, operators: Sequence[Operator], others: Iterable[Sequence[Operator]], levels: Levels
) -> Knockout:
    """Plan a model's knock-outs: each component, all, and where it differs from each of `others`.

    Operators are those of the layers, bottom first. Numbers of a stage that vary along more axes than in some of
    `others` are replaced by their mean over these axes, for each level there. If none is coarser, the coarsest of
    `levels` is compared.
    """
    parts, others = components(*operators), list(others)
    sets = dict.fromkeys((*parts, _join(parts)) if parts else ())
    for other in others:
        differing = {
            stage for mine, its in zip(operators, other, strict=False) for stage in differing_stages(mine, its)
        }
        touched = [part for part in parts if differing & set(part)]
        sets |= dict.fromkeys([_join(touched)] if touched else ())
    compared = find_levels(operator for other in others for operator in other)
    means: dict[str, tuple[Axis, ...]] = {}
    for operator in dict.fromkeys(operators):
        for stage, choice in operator.stages().items():
            coarser = _coarser(stage, choice, compared) or dict([*_coarser(stage, choice, levels).items()][:1])
            for level, left in coarser.items():
                means |= {f"{stage}-{level}.{field}": axes for field, axes in left.items()}
    return Knockout(name=measure.name, point=measure.point, sets=tuple(sets), means=means)


def find_levels(operators: Iterable[Operator]) -> Levels:
    """Collect the granularities of all stages of `operators` that have numbers."""
    levels = defaultdict[tuple[Any, ...], set[Axes]](set)
    for operator in dict.fromkeys(operators):
        for stage, choice in operator.stages().items():
            if choice.numbers():
                levels[_apart_from_numbers(stage, choice)].add(_axes(choice))
    return levels


def _coarser(stage: str, choice: Stage, levels: Levels) -> dict[str, dict[str, tuple[Axis, ...]]]:
    """Return the axes that each coarser one of `levels` leaves to numbers that vary along more, the coarsest first."""
    own, numbers = _axes(choice), choice.numbers()
    known = levels.get(_apart_from_numbers(stage, choice), set()) if numbers else set()
    coarser = [each for each in known if all(set(its) <= set(mine) for its, mine in zip(each, own, strict=True))]
    by_level = {}
    for level in sorted(coarser, key=lambda each: (sum(map(len, each)), each)):
        left = dict(zip(numbers, level, strict=True))
        for field, number in numbers.items():
            if isinstance(number, ByDepth) and "layer" in number.per:  # a constant one differs by layer, too
                left[field] = ("layer", *(axis for axis in left[field] if axis != "layer"))
        if left := {field: axes for field, axes in left.items() if set(axes) < set(numbers[field].per)}:
            by_level[_name_level(level)] = left
    return by_level


def _name_level(level: Axes) -> str:
    """Name the granularity of a stage: that of all of its numbers, or that of each, in order, joined by -."""
    names = [name_axes(axes) for axes in level]
    return names[0] if len(set(names)) == 1 else "-".join(names)


def _apart_from_numbers(stage: str, choice: Stage) -> tuple[Any, ...]:
    numbers = choice.numbers()
    return stage, type(choice), *(getattr(choice, field) for field in type(choice).model_fields if field not in numbers)


def _axes(choice: Stage) -> Axes:
    return tuple(number.per for number in choice.numbers().values())


def _join(parts: Iterable[Component]) -> Component:
    stages = {stage for part in parts for stage in part}
    return tuple(stage for stage in STAGES if stage in stages)
