"""Knock-out: which stages of a trained operator can be put at their default choice, and what that makes of it.

`Transformer.knock_out` computes a trained model so. A component is one changed stage, or several that go together since
no operator has them singly. An example is a ground state and the readout of its value.
"""

from collections.abc import Collection
from functools import lru_cache
from itertools import combinations

from ablate.grid.errors import SpecError
from ablate.variants.operator import Operator

STAGES = tuple(name for name in Operator.model_fields if name != "name")
"""The stages, in the order of the equation."""


Component = tuple[str, ...]
"""Stages in the order of the equation."""


def changed_stages(operator: Operator) -> Component:
    """Return the stages that are not at their default choice."""
    return tuple(stage for stage in STAGES if getattr(operator, stage) != Operator.model_fields[stage].default)


def differing_stages(one: Operator, other: Operator) -> Component:
    """Return the stages in which two operators differ, also by a number."""
    return tuple(stage for stage in STAGES if getattr(one, stage) != getattr(other, stage))


@lru_cache(maxsize=4096)
def components(*operators: Operator) -> tuple[Component, ...]:
    """Return the changed stages of operators, such as those of the layers of a model, grouped as they must go."""
    groups: list[set[str]] = []
    for operator in operators:
        for stage in changed_stages(operator):
            group = _smallest_with(operator, stage)
            groups, apart = [each for each in groups if not each & group], groups
            groups.append(group.union(*(each for each in apart if each & group)))
    return tuple(sorted((_in_order(group) for group in groups), key=lambda group: STAGES.index(group[0])))


def without(operator: Operator, stages: Collection[str]) -> Operator:
    """Return the operator with its components that have one of `stages` at their default choice."""
    gone = {stage for component in components(operator) if not set(stages).isdisjoint(component) for stage in component}
    return _at_default(operator, gone) if gone else operator


def _smallest_with(operator: Operator, stage: str) -> set[str]:
    """Return the smallest set of changed stages with `stage` in it without which the operator has a meaning."""
    others = [other for other in changed_stages(operator) if other != stage]
    for size in range(len(others)):
        for more in combinations(others, size):
            try:
                _at_default(operator, (stage, *more))
            except SpecError:
                continue
            return {stage, *more}
    return {stage, *others}


def _at_default(operator: Operator, stages: Collection[str]) -> Operator:
    return operator.changed(name="", **{stage: Operator.model_fields[stage].default for stage in stages})


def _in_order(stages: Collection[str]) -> Component:
    return tuple(stage for stage in STAGES if stage in stages)
