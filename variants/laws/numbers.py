"""The law that no number is idle: the output depends on every number."""

from collections.abc import Iterator

import torch

from variants.laws.inputs import Inputs, random_inputs
from variants.laws.law import Law, NothingStated, require
from variants.laws.values import extremes
from variants.laws.visibility import output
from variants.operator import Operator

_LEAST = 1e-6
_SEEDS = 3


def _matter(operator: Operator) -> None:
    """Check that the output moves on some inputs when one number is drawn again."""
    if not operator.numbers():
        raise NothingStated
    for name in operator.numbers():
        largest = 0.0
        for moved in _moves(operator, name):
            largest = max(largest, moved)
            if largest > _LEAST:
                break
        words = f"expected an output that moves by more than {_LEAST:g}, came {largest:.3g}, for another {name}"
        require(largest > _LEAST, words)


def _moves(operator: Operator, name: str) -> Iterator[float]:
    """Yield how far the output moves when one number is drawn again or set to an end of its range."""
    for seed in range(_SEEDS):
        inputs = _far_apart(operator, random_inputs(operator, seed=seed), 4.0**seed)
        own = inputs.numbers[name]
        others = [random_inputs(operator, seed=seed + _SEEDS).numbers[name]]
        others += [torch.full_like(own, value) for value in extremes(operator, name)]
        before = output(operator, inputs)
        for other in others:
            changed = inputs.replace({name: other})
            yield float((output(operator, changed) - before).abs().max())


def _far_apart(operator: Operator, inputs: Inputs, factor: float) -> Inputs:
    """Multiply numbers of either sign, so that thresholds lie on both sides of the logits."""
    links = {name: number.link for name, number in operator.numbers().items()}
    numbers = {name: x * factor if links[name] == "identity" else x for name, x in inputs.numbers.items()}
    return inputs._replace(numbers=numbers)


LAWS = (Law("numbers matter", "No number can be exchanged for another without a change of the output.", _matter),)
