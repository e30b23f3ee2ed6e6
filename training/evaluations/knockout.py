"""The plan of a trial's knock-outs: the measure that is taken again with parts of the operator changed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import field_validator

from ablate.grid.frozen import FROZEN, FrozenDict
from ablate.grid.measure import Measure
from ablate.grid.spec import Added, Name, Spec
from ablate.training.tasks.task import Measurements
from ablate.variants import Operator
from ablate.variants.granularity import Axis, Granularity, name_axes
from ablate.variants.model.knockout import STAGES, Component, components, differing_stages
from ablate.variants.number import ByDepth
from ablate.variants.stages.stage import Stage

Axes = tuple[tuple[Axis, ...], ...]
"""The axes of every number of a stage."""
Levels = Mapping[tuple[Any, ...], set[Axes]]
"""Granularities of a stage, by all else that it is."""


class Knockout(Spec):
    """The measure that a trial takes again at its end with parts of its operator changed; planning writes it."""

    kind: Literal["knockout"] = "knockout"
    name: Name
    """The name of the measure, an evaluation's or one that training logs per step."""
    point: Annotated[dict[Name, float], FROZEN] = FrozenDict()
    """Its point, or a part of it that fits one point."""
    sets: tuple[Component, ...] = ()
    """The sets of stages that go; with the components of an operator that have one of them, they go together."""
    means: Annotated[dict[Name, Granularity], FROZEN] = FrozenDict()
    """The axes that are left to a number, by "stage-level.field"; it is replaced by its mean over the others.

    The level is the granularity that it is compared with.
    """
    refit: Annotated[bool, Added()] = False
    """True to fit a temperature and an output size of every head after each of `sets`, and to measure nothing else."""

    @field_validator("sets")
    @classmethod
    def _are_stages(cls, sets: tuple[Component, ...]) -> tuple[Component, ...]:
        for stage in (stage for each in sets for stage in each):
            if stage not in STAGES:
                raise ValueError(f"there is no stage {stage!r}; there are {', '.join(STAGES)}")
        return sets

    def fits(self, row: Measurements) -> bool:
        """Return True if a row is of this measure at this point."""
        return row.name == self.name and self.point.items() <= row.point.items()

    def join(self, other: Self) -> Self:
        """Return the knock-outs of both, which are of one measure."""
        sets = dict.fromkeys((*self.sets, *other.sets))
        return self.changed(sets=tuple(sets), means={**other.means, **self.means})

    def refits(self) -> Self | None:
        """Return the refits after each of `sets` but that of all components, which has one; None if there is none."""
        everything = {stage for each in self.sets for stage in each}
        single = tuple(each for each in self.sets if {*each} != everything)
        return self.changed(sets=single, means={}, refit=True) if single else None

    def means_by_level(self) -> dict[str, dict[str, tuple[Axis, ...]]]:
        """Return `means` apart for each "stage-level", by "stage.field"."""
        by_level: dict[str, dict[str, tuple[Axis, ...]]] = {}
        for name, axes in self.means.items():
            level, _, field = name.partition(".")
            by_level.setdefault(level, {})[f"{level.partition('-')[0]}.{field}"] = axes
        return by_level


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


def row_name(stages: Iterable[str], measured: str) -> str:
    """Name the row of a set of stages, or of another change."""
    return f"knockout.{'+'.join(stages)}.{measured}"
