"""Cells that compute the same function, whatever training makes of their weights: exact controls, or one cell twice.

An operator is computed in a layer, on random input of the longest sequence of the trial. All that is trained is drawn
at random, all that is fixed has its value. Two operators are one function if their outputs agree. A cell is the
functions of its layers; only cells that are equal in everything else are compared.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.grid.names import some
from ablate.runners.output import format_count
from ablate.training.planning.random_layer import LayerSize, RandomLayer
from ablate.variants import Operator, catalogue, softmax
from ablate.variants.model.seeding import generator
from ablate.variants.papers.integral import integral_control

TOLERANCE: Final = 1e-6
"""Largest difference, relative to the output. Fixed numbers have the rounding of float32, as in training. It moves a
logit by 6e-8 of its size, and logits are below 10."""
Array = NDArray[np.float64]
_SUMS = 8
"""Random sums of an output that are compared in its place."""


class LayeredCell(NamedTuple):
    """A cell: the operators of its layers, bottom first, and all else of its trials."""

    label: str
    operators: tuple[Operator, ...]
    size: LayerSize
    rest: Hashable


class PlacedOperator(NamedTuple):
    """An operator in a layer, of those that have it; `first` is the lowest."""

    operator: Operator
    size: LayerSize
    layer: int
    first: int


class SameFunction(NamedTuple):
    """Cells that compute the same function."""

    cells: tuple[str, ...]
    starts_differ: bool = False
    """True if trained numbers start elsewhere."""
    like: str | None = None
    """The operator of a documented limit that computes it, if no cell has it."""


def place(cell: LayeredCell) -> tuple[PlacedOperator, ...]:
    """Return the operator of each layer; from its second layer on, it is as in the second."""
    placed, layers = list[PlacedOperator](), defaultdict[Operator, list[int]](list)
    for layer, operator in enumerate(cell.operators):
        own = layers[operator]
        own.append(layer)
        at, first = (own[:2][-1], own[0]) if operator.numbers() else (0, 0)
        placed.append(PlacedOperator(operator, cell.size, at, first))
    return tuple(placed)


def same_functions(cells: Sequence[LayeredCell], functions: "Functions") -> Iterator[SameFunction]:
    """Yield the groups of cells that compute the same function, and cells that compute that of a documented limit."""
    stated = [(known.name, limit.to) for known in catalogue().values() for limit in known.limits]
    limits = dict.fromkeys([softmax(), *filter(None, (functions.attempt(*each) for each in stated))])
    groups = defaultdict[tuple[object, ...], list[LayeredCell]](list)
    for cell in cells:
        groups[cell.rest, cell.size, functions.of(cell)].append(cell)
    for group in groups.values():
        like = _limit_of(group, limits, functions)
        if len(group) > 1 or like:
            starts = {functions.of(each, drawn=False) for each in group}
            yield SameFunction(tuple(each.label for each in group), len(starts) > 1, like)


def same_function_lines(functions: Iterable[SameFunction]) -> Iterator[str]:
    """Say which cells compute the same function."""
    for labels, starts_differ, like in functions:
        count, where = len(labels), " from different starts" if starts_differ else ""
        verb, also = ("computes", "") if count == 1 else ("compute", f": {some(labels, 6)}")
        which = labels[0] if count == 1 else format_count(count, "cell")
        yield f"{which} {verb} the same function{where}{f' as {like}' if like else ''}{also}"


def _limit_of(group: Sequence[LayeredCell], limits: Iterable[Operator], functions: "Functions") -> str | None:
    """Return the label of the first operator of `limits` that makes a cell of this function and is in none."""
    own = {tuple(map(_stages, each.operators)) for each in group}
    cell = group[0]
    for operator in dict.fromkeys(cell.operators):
        signals = operator.signals.count
        for other in (*limits, *([integral_control(signals)] if signals > 1 else [])):
            replaced = cell._replace(operators=tuple(other if each == operator else each for each in cell.operators))
            if not cell.size.takes(other) or functions.of(replaced) != functions.of(cell):
                continue
            return None if tuple(map(_stages, replaced.operators)) in own else other.label
    return None


def _stages(operator: Operator) -> Operator:
    return operator.changed(name="")


@final
class Functions:
    """Numbers for the functions of operators: equal if they agree.

    `attempt` computes something by its label, which may be a user's code; None if that fails. Such a function has a
    number of its own.
    """

    def __init__(self, attempt: Callable[[str, Callable[[], Any]], Any]) -> None:
        self.attempt = attempt
        self._found: dict[tuple[PlacedOperator, bool], int] = {}
        self._known: dict[tuple[LayerSize, bool], list[Array]] = defaultdict(list)

    def of(self, cell: LayeredCell, *, drawn: bool = True) -> tuple[int, ...]:
        """Return the function of each layer; without `drawn`, trained numbers are at their start."""
        return tuple(self._number(each, drawn) for each in place(cell))

    def _number(self, each: PlacedOperator, drawn: bool) -> int:  # noqa: FBT001
        if (each, drawn) not in self._found:
            summary = self.attempt(each.operator.label, partial(_summarise, each, drawn=drawn))
            self._found[each, drawn] = (
                -1 - len(self._found) if summary is None else self._look_up(each, drawn, *summary)
            )
        return self._found[each, drawn]

    def _look_up(self, each: PlacedOperator, drawn: bool, sums: Array, size: float) -> int:  # noqa: FBT001
        known = self._known[each.size, drawn]
        apart = np.abs(np.array(known).reshape(-1, _SUMS) - sums).max(1, initial=0.0)
        at = int(np.argmax([*(apart <= TOLERANCE * size), True]))
        if at == len(known):
            known.append(sums)
        return at


def _summarise(each: PlacedOperator, *, drawn: bool) -> tuple[Array, float]:
    """Return random sums of the output, whose differences are about the size of that of the output; and its size."""
    worked = RandomLayer(each.operator, each.size, each.layer, each.first)
    if drawn:
        worked.randomise()
    output = worked.output().flatten()
    return (_weights(len(output)) @ output).numpy(), float(output.norm())


@lru_cache(maxsize=4)
def _weights(entries: int) -> Tensor:
    return torch.empty(_SUMS, entries, dtype=torch.float64).normal_(generator=generator(0, "sums"))
