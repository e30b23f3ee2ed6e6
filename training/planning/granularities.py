"""Numbers that a grid compares at several granularities, of which `constant` trains nothing."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ablate.variants import Number, Operator


class FixedNumber(NamedTuple):
    """A number that is fixed in some cells and trained in others, from the same start."""

    number: str
    """As "stage.field"."""
    value: float
    trained: tuple[str, ...]
    """The granularities at which others train it."""


def fixed_numbers(operators: Iterable[Operator]) -> tuple[FixedNumber, ...]:
    """Find the numbers that `operators` compare at `constant`, without `learned=True`, with other granularities."""
    groups: dict[tuple[str, str, Number], list[Number]] = defaultdict(list)
    for operator in operators:
        for name, number in operator.numbers().items():
            if () not in number.allowed:
                continue
            kind = getattr(operator, name.partition(".")[0]).kind
            groups[name, kind, number.at("constant")].append(number)
    return tuple(
        FixedNumber(name, fixed.init, tuple(dict.fromkeys(each.label for each in numbers if each.per)))
        for (name, _, fixed), numbers in groups.items()
        if fixed in numbers and any(each.per for each in numbers)
    )


def fixed_number_line(numbers: Iterable[FixedNumber]) -> str:
    """Say in a line what `constant` means."""
    values = ", ".join(f"{each.number} stays at {each.value:g}" for each in numbers)
    return f"per='constant' trains nothing: {values}; learned=True trains one scalar for all layers and heads"
