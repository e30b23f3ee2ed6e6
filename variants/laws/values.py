"""Laws of the output: it equals the plain-float oracle under any mask, and depends on every number."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants.attend import Heads, attention, prepare
from ablate.variants.laws.inputs import Inputs, fit, random_inputs, with_number
from ablate.variants.laws.law import Law, NothingStated, equal, require
from ablate.variants.laws.oracle import AddedLogits, attend_in_floats
from ablate.variants.laws.visibility import output
from ablate.variants.links import Link
from ablate.variants.number import Matrix
from ablate.variants.operator import Operator, causal
from ablate.variants.stages.positions import Alibi, NoPositions

_EXTREMES: dict[Link, tuple[float, ...]] = {
    "identity": (-10.0, 0.0, 10.0),
    "positive": (1e-2, 1e2),
    "at_least_one": (1.0, 20.0),
    "unit": (0.0, 1e-6, 1 - 1e-6, 1.0),
    "clipped": (0.0, 1.0),
}
_EXTREME_ENTRIES = (-1.0, 0.0, 1.0)
"""Entries of a matrix."""
_LEAST = 1e-6
_SEEDS = 3


def _oracle(operator: Operator) -> None:
    """Check masks of every sort, short sequences, and a position bias if the operator accepts one."""
    inputs, rows = random_inputs(operator, length=7), torch.arange(7)
    plain, made = causal(7, 7), torch.Generator().manual_seed(1)
    holes = plain & ((torch.rand(7, 7, generator=made) < 0.6) | torch.eye(7, dtype=torch.bool))
    holes[3] = False
    _against_floats(operator, inputs, plain, "a causal mask")
    _against_floats(operator, inputs, holes, "a causal mask with holes and a row that sees nothing")
    _against_floats(operator, inputs, (rows != 2).expand(7, 7), "an encoder's mask with a hidden key")
    _against_floats(operator, inputs, rows[None] == (3 * rows[:, None]) % 7, "rows that see one key each")
    for seed in range(_SEEDS):
        one, two = (random_inputs(operator, length=length, seed=seed) for length in (1, 2))
        _against_floats(operator, one, causal(1, 1), "a sequence of one token")
        _against_floats(operator, two, torch.ones(2, 2, dtype=torch.bool), "two tokens that see each other")
    batch, heads = inputs.q.shape[:2]
    own = plain & (torch.rand(batch, 1, 7, 7, generator=made) < 0.6)
    bias = torch.randn(1, heads, 7, 7, generator=made, dtype=torch.float64) if _admits_bias(operator) else None
    _against_floats(operator, inputs, own, "a mask for each sequence and a position bias, if it takes one", bias)


def _against_floats(operator: Operator, inputs: Inputs, mask: Tensor, words: str, bias: Tensor | None = None) -> None:
    """Compare with the oracle: every sequence if `mask` is [B, 1, T, T], the last one if it is [T, T]."""
    q, k = prepare(operator, inputs.q, inputs.k, NoPositions(), inputs.numbers)
    came = attention(operator, Heads(q, k, inputs.v, mask, bias), inputs.numbers).output
    added = None if bias is None else AddedLogits(bias=bias[0].tolist())
    for at in range(len(came)) if mask.dim() == 4 else [len(came) - 1]:
        numbers = {name: value[at if value.shape[0] > 1 else 0] for name, value in inputs.numbers.items()}
        heads = (inputs.q[at].tolist(), inputs.k[at].tolist(), inputs.v[at].tolist())
        seen = (mask[at, 0] if mask.dim() == 4 else mask).tolist()
        expected = torch.tensor(attend_in_floats(operator, heads, seen, numbers, added), dtype=torch.float64)
        equal(came[at], expected, words, oracle=True)


def _admits_bias(operator: Operator) -> bool:
    joined, shape = operator.merge.heads_joined, fit(operator)
    heads, width = shape.heads * joined, shape.channels // joined
    try:
        operator.check(heads=heads, kv_heads=heads, head_width=width, positions=Alibi())
    except ValueError:
        return False
    return True


def _any_numbers(operator: Operator) -> None:
    if not operator.numbers():
        raise NothingStated
    inputs = random_inputs(operator, length=5, seed=4)
    for name in operator.numbers():
        for value in extremes(operator, name):
            there = inputs.replace({name: torch.full_like(inputs.numbers[name], value)})
            _against_floats(operator, there, causal(5, 5), f"{name} = {value:g}")


def extremes(operator: Operator, name: str) -> Iterator[float]:
    """Yield values at the borders of a number's range and far out, if the operator accepts them."""
    number = operator.numbers()[name]
    if isinstance(number, Matrix):
        yield from _EXTREME_ENTRIES
        return
    for value in _EXTREMES[number.link]:
        try:
            with_number(operator, name, (number.at(()) if number.trained else number).changed(init=value))
        except SpecError:
            continue
        yield value


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
    """Yield how far the output moves for another number; numbers of either sign are multiplied to cross thresholds."""
    signed = {each for each, number in operator.numbers().items() if number.link == "identity"}
    for seed in range(_SEEDS):
        inputs = random_inputs(operator, seed=seed)
        inputs = inputs.replace({each: inputs.numbers[each] * 4.0**seed for each in signed})
        others = [random_inputs(operator, seed=seed + _SEEDS).numbers[name]]
        others += [torch.full_like(inputs.numbers[name], value) for value in extremes(operator, name)]
        before = output(operator, inputs)
        for other in others:
            yield float((output(operator, inputs.replace({name: other})) - before).abs().max())


LAWS = (
    Law("oracle", "In plain floats, without tensors, it is the same under every mask and position bias.", _oracle),
    Law("any numbers", "At the borders of its numbers' ranges it is what the plain floats say.", _any_numbers),
    Law("numbers matter", "No number can be exchanged for another without a change of the output.", _matter),
)
