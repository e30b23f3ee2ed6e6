"""Laws of the value: what it is in plain floats, and at any numbers."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from grid.errors import SpecError
from variants.attend import attend
from variants.links import Link
from variants.number import Matrix
from variants.operator import Operator, causal
from variants.proof.inputs import Inputs, random_inputs, with_number
from variants.proof.law import Law, LawBroken, NothingStated, near
from variants.proof.oracle import attend_in_floats
from variants.stages import Score

EXACT = {"rtol": 1e-10, "atol": 1e-12}
"""Two ways to compute the same in float64."""

_EXTREMES: dict[Link, tuple[float, ...]] = {
    "identity": (-10.0, 0.0, 10.0),
    "positive": (1e-2, 1e2),
    "at_least_one": (1.0, 20.0),
    "unit": (0.0, 1e-6, 1 - 1e-6, 1.0),
    "clipped": (0.0, 1.0),
}
_EXTREME_ENTRIES = (-1.0, 0.0, 1.0)
"""Of a matrix."""


def masks(length: int) -> dict[str, Tensor]:
    """Masks [T, T] of every sort that a model gives."""
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
    """The last sequence of the batch, against the oracle."""
    last = inputs.q.shape[0] - 1
    came = attend(operator, inputs.q, inputs.k, inputs.v, mask=mask, numbers=inputs.numbers).output[last]
    numbers = {name: value[last if value.shape[0] > 1 else 0] for name, value in inputs.numbers.items()}
    heads = (inputs.q[last].tolist(), inputs.k[last].tolist(), inputs.v[last].tolist())
    expected = attend_in_floats(operator, heads, mask.tolist(), numbers)
    near(came, torch.tensor(expected, dtype=torch.float64), words, **EXACT)


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
    inputs = random_inputs(operator, length=7, seed=4)
    for name in operator.numbers():
        for value in extremes(operator, name):
            filled = torch.full_like(inputs.numbers[name], value)
            there = inputs._replace(numbers={**inputs.numbers, name: filled})
            _against_floats(operator, there, causal(7, 7), f"{name} = {value:g}")


def extremes(operator: Operator, name: str) -> Iterator[float]:
    """Values at the borders of a number's range, and far out, that the operator accepts."""
    number = operator.numbers()[name]
    for value in _EXTREME_ENTRIES if isinstance(number, Matrix) else _EXTREMES[number.link]:
        if isinstance(number, Matrix) or _accepts(operator, name, value):
            yield value


def _accepts(operator: Operator, name: str, value: float) -> bool:
    """Whether the number may be fixed at `value`."""
    number = operator.numbers()[name]
    try:
        with_number(operator, name, (number.at(()) if number.trained else number).changed(init=value))
    except SpecError:
        return False
    return True


def _identities(operator: Operator) -> None:
    """Every score's, by itself: relative to what it tends to."""
    if not operator.score.identities:
        raise NothingStated
    a = torch.linspace(-6, 6, 101, dtype=torch.float64)
    for identity in operator.score.identities:
        numbers = {name: torch.tensor(value, dtype=torch.float64) for name, value in identity.numbers.items()}
        other = Score.members().get(identity.to)
        if other is None:
            raise LawBroken(f"{operator.score.label!r} tends to {identity.to!r}, and there is no such score")
        came, expected = _scored(operator.score, a, numbers), _scored(other.example(), a, {})
        near(came, expected, f"{operator.score.label} with {dict(identity.numbers)}", rtol=identity.within)


def _scored(score: Score, a: Tensor, numbers: dict[str, Tensor]) -> Tensor:
    found = score.scores(a[None], torch.ones(1, len(a), dtype=torch.bool), **numbers)
    if found.plain is not None:
        return found.plain[0]
    assert found.log is not None
    return (found.log.exp() if found.sign is None else found.log.exp() * found.sign)[0]


def _slope_at_zero(operator: Operator) -> None:
    """At a logit of 0, where all logits of a fresh model are, the gradient is a slope the score has there."""
    step = math.ulp(1.0) ** 0.5
    inputs = random_inputs(operator, length=1)
    numbers = {
        name.removeprefix("score."): value[:1, :, :1] for name, value in inputs.numbers.items() if "score." in name
    }
    a = torch.zeros(1, inputs.q.shape[1], 1, 3, dtype=torch.float64)
    mask = torch.ones(1, 3, dtype=torch.bool)

    def value(logits: Tensor) -> Tensor:
        found = operator.score.scores(logits, mask, **numbers)
        shown = found.log if found.log is not None else found.plain
        assert shown is not None
        return shown

    start = a.clone().requires_grad_()
    (came,) = torch.autograd.grad(value(start).sum(), start, allow_unused=True, materialize_grads=True)
    left, right = (value(a) - value(a - step)) / step, (value(a + step) - value(a)) / step
    low, high = torch.minimum(left, right) - 1e-5, torch.maximum(left, right) + 1e-5
    near(came, came.clamp(low, high), f"the slope of score {operator.score.label!r} at a logit of 0")


LAWS = (
    Law("oracle", "In plain floats, without tensors, it is the same under every mask.", _oracle),
    Law("few keys", "A query that sees one or two keys gets what the plain floats say.", _few_keys),
    Law("any numbers", "At the borders of its numbers' ranges it is what the plain floats say.", _any_numbers),
    Law("identities", "Its score tends to what the score says it tends to.", _identities),
    Law("slope at zero", "At a logit of 0 the score's gradient is one of its slopes there.", _slope_at_zero),
)
