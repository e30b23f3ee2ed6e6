"""The plan of a trial's knock-outs: the measure that is taken again with parts of the operator changed."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import field_validator

from ablate.grid.frozen import FROZEN, FrozenDict
from ablate.grid.spec import Added, Name, Spec
from ablate.training.tasks.task import Measurements
from ablate.variants.granularity import Axis, Granularity
from ablate.variants.model.knockout import STAGES, Component


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


def row_name(stages: Iterable[str], measured: str) -> str:
    """Name the row of a set of stages, or of another change."""
    return f"knockout.{'+'.join(stages)}.{measured}"
