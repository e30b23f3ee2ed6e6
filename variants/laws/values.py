"""Laws of the output: it equals the plain-float oracle under any mask, and depends on every number."""

from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor

from grid.errors import SpecError
from variants.attend import Heads, attend, attention, prepare
from variants.laws.inputs import Inputs, fit, random_inputs, with_number
from variants.laws.law import Law, NothingStated, near, require
from variants.laws.oracle import Added, attend_in_floats
from variants.laws.visibility import output
from variants.links import Link
from variants.number import Matrix
from variants.operator import Operator, causal
from variants.stages.positions.alibi import Alibi
from variants.stages.positions.none import NoPositions


class Exact(TypedDict):
    """A tolerance."""

    rtol: float
    atol: float


EXACT: Exact = {"rtol": 1e-10, "atol": 1e-12}
"""Tolerance of two computations of the same value in float64."""

_EXTREMES: dict[Link, tuple[float, ...]] = {
    "identity": (-10.0, 0.0, 10.0),
    "positive": (1e-2, 1e2),
    "at_least_one": (1.0, 20.0),
    "unit": (0.0, 1e-6, 1 - 1e-6, 1.0),
    "clipped": (0.0, 1.0),
}
_LEAST = 1e-6
_SEEDS = 3
_EXTREME_ENTRIES = (-1.0, 0.0, 1.0)
"""Entries of a matrix."""


def masks(length: int) -> dict[str, Tensor]:
    """Return masks [T, T] of every sort that a model gives."""
    made = torch.Generator().manual_seed(1)
    plain, rows = causal(length, length), torch.arange(length)
    holes = plain & (torch.rand(length, length, generator=made) < 0.6)
    blind = plain.clone()
    blind[length // 2] = False
    return {
        "a causal mask": plain,
        "a causal mask with holes": holes | torch.eye(length, dtype=torch.bool),
        "a causal mask with a row that sees nothing": blind,
        "an encoder's full mask": torch.ones(length, length, dtype=torch.bool),
        "an encoder's mask with a hidden key": (rows != 2).expand(length, length),
    }


def _against_floats(operator: Operator, inputs: Inputs, mask: Tensor, words: str) -> None:
    """Compare the last sequence of the batch with the oracle."""
    last = inputs.q.shape[0] - 1
    came = attend(operator, inputs.q, inputs.k, inputs.v, mask=mask, numbers=inputs.numbers).output[last]
    near(came, _floats(operator, inputs, mask, last), words, **EXACT, oracle=True)


def _floats(operator: Operator, inputs: Inputs, mask: Tensor, at: int, added: Added | None = None) -> Tensor:
    """Compute one sequence [H, T, D] with a mask [T, T] by the oracle."""
    numbers = {name: value[at if value.shape[0] > 1 else 0] for name, value in inputs.numbers.items()}
    heads = (inputs.q[at].tolist(), inputs.k[at].tolist(), inputs.v[at].tolist())
    found = attend_in_floats(operator, heads, mask.tolist(), numbers, added)
    return torch.tensor(found, dtype=torch.float64)


def _oracle(operator: Operator) -> None:
    inputs = random_inputs(operator, length=7)
    for words, mask in masks(7).items():
        _against_floats(operator, inputs, mask, words)


def _few_keys(operator: Operator) -> None:
    inputs = random_inputs(operator, length=7, seed=2)
    rows = torch.arange(7)
    _against_floats(operator, inputs, rows[None] == (3 * rows[:, None]) % 7, "rows that see one key each")
    for seed in range(3):
        _against_floats(operator, random_inputs(operator, length=1, seed=seed), causal(1, 1), "a sequence of one token")
        both = torch.ones(2, 2, dtype=torch.bool)
        words = "two tokens that see each other"
        _against_floats(operator, random_inputs(operator, length=2, seed=seed), both, words)


def _any_numbers(operator: Operator) -> None:
    if not operator.numbers():
        raise NothingStated
    inputs = random_inputs(operator, length=5, seed=4)
    for name in operator.numbers():
        for value in extremes(operator, name):
            filled = torch.full_like(inputs.numbers[name], value)
            there = inputs.replace({name: filled})
            _against_floats(operator, there, causal(5, 5), f"{name} = {value:g}")


def extremes(operator: Operator, name: str) -> Iterator[float]:
    """Yield values at the borders of a number's range and far out, if the operator accepts them."""
    number = operator.numbers()[name]
    for value in _EXTREME_ENTRIES if isinstance(number, Matrix) else _EXTREMES[number.link]:
        if isinstance(number, Matrix) or _accepts(operator, name, value):
            yield value


def _accepts(operator: Operator, name: str, value: float) -> bool:
    """Return True if the number may be fixed at `value`."""
    number = operator.numbers()[name]
    try:
        with_number(operator, name, (number.at(()) if number.trained else number).changed(init=value))
    except SpecError:
        return False
    return True


def _bias_and_masks(operator: Operator) -> None:
    """Check a mask per sequence, and a position bias if the operator accepts one."""
    inputs, made = random_inputs(operator, length=7, seed=8), torch.Generator().manual_seed(2)
    batch, heads = inputs.q.shape[:2]
    mask = causal(7, 7) & (torch.rand(batch, 1, 7, 7, generator=made) < 0.6)
    bias = torch.randn(1, heads, 7, 7, generator=made, dtype=torch.float64) if _admits_bias(operator) else None
    q, k = prepare(operator, inputs.q, inputs.k, NoPositions(), inputs.numbers)
    came = attention(operator, Heads(q, k, inputs.v, mask, bias), inputs.numbers).output
    added = None if bias is None else Added(bias=bias[0].tolist())
    for at in range(batch):
        expected = _floats(operator, inputs, mask[at, 0], at, added)
        words = f"sequence {at} with a mask of its own{'' if bias is None else ' and a position bias'}"
        near(came[at], expected, words, **EXACT, oracle=True)


def _admits_bias(operator: Operator) -> bool:
    joined, found = operator.merge.heads_joined, fit(operator)
    heads, width = found.heads * joined, found.channels // joined
    try:
        operator.check(heads=heads, kv_heads=heads, head_width=width, positions=Alibi())
    except ValueError:
        return False
    return True


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


LAWS = (
    Law("oracle", "In plain floats, without tensors, it is the same under every mask.", _oracle),
    Law("few keys", "A query that sees one or two keys gets what the plain floats say.", _few_keys),
    Law("any numbers", "At the borders of its numbers' ranges it is what the plain floats say.", _any_numbers),
    Law(
        "bias and masks",
        "With a position bias and a mask per sequence it is what the plain floats say.",
        _bias_and_masks,
    ),
    Law("numbers matter", "No number can be exchanged for another without a change of the output.", _matter),
)
