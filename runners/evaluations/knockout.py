"""The plan of a trial's knock-outs: the measure that is taken again without parts of the operator."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field, field_validator

from ablate.grid.frozen import FROZEN, FrozenDict
from ablate.grid.measure import Measure
from ablate.grid.spec import Name, Spec
from ablate.grid.values import MOST_NAME
from ablate.runners.tasks.task import Measurements
from ablate.variants import Operator
from ablate.variants.model.knockout import STAGES, Component, components, differing_stages


class Knockout(Spec):
    """The measure that a trial takes again at its end without parts of its operator; planning writes it."""

    name: Name
    """The name of the measure, an evaluation's or one that training logs per step."""
    point: Annotated[dict[Name, float], FROZEN] = FrozenDict()
    """Its point, or a part of it that fits one point."""
    sets: Annotated[tuple[Component, ...], Field(min_length=1)]
    """The sets of stages; with the components of an operator that have one of them, they go together."""

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


def plan_knockout(
    measure: Measure, operators: Sequence[Operator], others: Iterable[Sequence[Operator]]
) -> Knockout | None:
    """Plan a model's knock-outs: each component, all, and where it differs from each of `others`; None without any.

    Operators are those of the layers, bottom first.
    """
    parts = components(*operators)
    if not parts:
        return None
    sets = dict.fromkeys((*parts, _join(parts)))
    for other in others:
        differing = {
            stage for mine, its in zip(operators, other, strict=False) for stage in differing_stages(mine, its)
        }
        touched = [part for part in parts if differing & set(part)]
        sets |= dict.fromkeys([_join(touched)] if touched else ())
    fitting = [each for each in sets if len(row_name(each, measure.name)) <= MOST_NAME]
    return Knockout(name=measure.name, point=measure.point, sets=tuple(fitting)) if fitting else None


def _join(parts: Iterable[Component]) -> Component:
    stages = {stage for part in parts for stage in part}
    return tuple(stage for stage in STAGES if stage in stages)


def row_name(stages: Iterable[str], measured: str) -> str:
    """Name the row of a set of stages."""
    return f"knockout.{'+'.join(stages)}.{measured}"
