"""Starts from which a number cannot move, told before anything is trained.

    reach = distance x change of a head's output per unit of the number

The distance is how far the optimiser moves a parameter in the run. Adam and others that divide by the size of the
gradient move it by about the sum of the schedule's learning rates. For SGD that is multiplied by the gradient, for
which the change of the output is taken, as of a loss that changes as much as the output. The unit is that of the
trained parameter, so the slope of the link is part of the change. The change is relative, on random input: x added to
the logits of some keys changes the output by about x, and added to all of a row by nothing.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import torch

from ablate.grid.names import some
from ablate.runners.output import format_count
from ablate.training.optimisers import Optimiser, ParameterVectors, Training
from ablate.training.optimisers.optimiser import LR_SHARE
from ablate.training.planning.random_layer import LayerSize, RandomLayer
from ablate.variants import Operator
from ablate.variants.model.seeding import generator

LEAST_REACH: Final = 0.05
"""Reach below which a number will hardly move.

On the quickstart's task, the knock-out after 300 steps found components off or faint up to a reach of 0.033 (a margin
from -3). It found them on or faint from 0.065 (FoX from 0.99). `docs/statistics.md` has the table.
"""
_TRIED, _SAMPLED, _STEP, _SMALL = 100, 1000, 1e-6, 1e-3
"""Steps of an optimiser that are tried, steps of a schedule that are looked at, a difference, a small gradient."""


class FlatStart(NamedTuple):
    """A number that will hardly move from its start, and the cells that have it there."""

    number: str
    """As "stage.field"."""
    start: float
    reach: float
    """The largest of the cells."""
    weights: bool
    """True if its stage has weights of its own, a gate's projections, which can move."""
    cells: tuple[str, ...]


class NumberStart(NamedTuple):
    """A number of a cell at its start."""

    number: str
    start: float
    reach: float
    weights: bool


class Movement(NamedTuple):
    """How a run moves a parameter whose gradient does not change: by `distance` gradient^`power`."""

    distance: float
    power: float
    """0 for Adam, 1 for SGD."""


def flat_starts(starts: Iterable[tuple[str, NumberStart]]) -> tuple[FlatStart, ...]:
    """Group the starts of cells, each with its label, that lie below `LEAST_REACH`."""
    groups: dict[tuple[str, float, bool], dict[str, float]] = defaultdict(dict)
    for label, each in starts:
        if each.reach < LEAST_REACH:
            reaches = groups[each.number, each.start, each.weights]
            reaches[label] = max(each.reach, reaches.get(label, 0.0))
    return tuple(
        FlatStart(number, start, max(reaches.values()), weights, tuple(reaches))
        for (number, start, weights), reaches in groups.items()
    )


def flat_start_lines(starts: Iterable[FlatStart]) -> Iterator[str]:
    """Say which numbers will hardly move, by how much, and what else can."""
    for each in starts:
        size = f"training it changes a head's output by at most {100 * each.reach:.2g} %, below {100 * LEAST_REACH:g} %"
        can = f", but the {each.number.partition('.')[0]}'s projection can" if each.weights else ""
        cells = f"{format_count(len(each.cells), 'cell')}, {some(each.cells, 3)}"
        yield f"{each.number} will hardly move from {each.start:g} ({size}) and acts as it starts{can}; {cells}"


def starts(operator: Operator, size: LayerSize, layer: int, moved: Movement) -> Iterator[NumberStart]:
    """Yield the trained numbers of an operator; ValueError if it has no finite output on random input."""
    for name, change in _changes(operator, size, layer).items():
        reach = moved.distance * change ** (1 + moved.power)
        weights = name.startswith("gate.") and operator.gate.channels > 0
        yield NumberStart(name, operator.numbers()[name].init_at(layer), reach, weights)


@lru_cache(maxsize=4096)
def _changes(operator: Operator, size: LayerSize, layer: int) -> dict[str, float]:
    """Return the relative change of the output per unit of each trained number, of random sign in each entry."""
    trained = [name for name, number in operator.numbers().items() if number.trained]
    if not trained:
        return {}
    worked = RandomLayer(operator, size, layer, layer)
    worked.numbers.eval()  # running means stay
    before, changes = worked.output(), {}
    for name in trained:
        made = generator(0, name, "sign")
        moved = [
            (tensor, _STEP * torch.empty_like(tensor).normal_(generator=made).sign())
            for tensor in worked.parameters(name)
        ]
        for tensor, by in moved:
            tensor.add_(by)
        changes[name] = float((worked.output() - before).norm() / before.norm()) / _STEP
        for tensor, by in moved:
            tensor.sub_(by)
    return changes


@lru_cache(maxsize=256)
def movement(training: Training) -> Movement:
    """Try the optimiser on gradients of two sizes at its peak rate, and scale to the schedule."""
    steps, every = min(training.steps, _TRIED), max(1, training.steps // _SAMPLED)
    factors = [training.schedule.factor(step, training.steps) for step in range(0, training.steps, every)]
    far, near = (_distance(training.optimiser, steps, gradient) for gradient in (1.0, _SMALL))
    power = math.log(far / near, 1 / _SMALL) if far > 0 and near > 0 else 0.0
    return Movement(far * training.steps / steps * sum(factors) / len(factors), max(power, 0.0))


def _distance(optimiser: Optimiser, steps: int, gradient: float) -> float:
    """Return how far a parameter without decay moves."""
    number, weight = (torch.zeros(1, requires_grad=True) for _ in range(2))
    hidden, shapes = (weight, ((1, 1),)) if optimiser.by_matrix else (None, ())
    built = optimiser.build(ParameterVectors([], [number], hidden, shapes))
    for _ in range(steps):
        for group in built.param_groups:
            group["lr"] = optimiser.lr * group.get(LR_SHARE, 1.0)
        number.grad, weight.grad = torch.full((1,), gradient), torch.full((1,), gradient)
        built.step()
    return float(number.detach().abs())
