"""The law of limits: a named operator tends to the operators that its limits name."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.laws.law import Law, NothingStated, near, require
from ablate.variants.number import Vector
from ablate.variants.operator import Operator, head_shape
from ablate.variants.papers.catalogue import Limit, Where, catalogue


@lru_cache(maxsize=1024)
def _key(make: Callable[[], Operator]) -> str:
    return make().key


def _limits(operator: Operator) -> None:
    stated = [limit for known in catalogue().values() for limit in known.limits if _key(known.make) == operator.key]
    if not stated:
        raise NothingStated
    for limit in stated:
        _limit(operator, limit)


def _limit(operator: Operator, limit: Limit) -> None:
    """Compare without the gate's channels: the other operator has no gate or its own."""
    drawn, other = random_inputs(operator, seed=5), limit.to()
    inputs = _WHERE[limit.where](operator, drawn)
    unknown = set(limit.numbers) - set(operator.numbers())
    require(not unknown, f"the limit {limit.words} names numbers that {operator.label!r} has not: {sorted(unknown)}")
    numbers = _at_start(operator, inputs)
    for name, value in limit.numbers.items():
        numbers[name] = torch.full_like(numbers[name], value)
    there = operator.changed(**{stage: getattr(operator, stage).changed(**to) for stage, to in limit.fields.items()})
    came = inputs.attend(there, numbers).output
    own = inputs.q.shape[-1] - operator.gate.channels + other.gate.channels
    theirs = inputs._replace(q=inputs.q[..., :own], k=inputs.k[..., :own])
    expected = theirs.attend(other, _at_start(other, theirs)).output
    near(came, expected, f"{limit.words}: {operator.label} as {other.label}", atol=limit.within)


def _at_start(operator: Operator, inputs: Inputs) -> dict[str, Tensor]:
    shape, values = (
        head_shape(operator, heads=inputs.q.shape[1], query=inputs.q.shape[-1], value=inputs.v.shape[-1], width=1),
        dict[str, Tensor](),
    )
    for name, number in operator.numbers().items():
        if number.trained:
            raw = number.table(shape, 0)
            number.disturb(raw, torch.Generator().manual_seed(len(name)))
            values[name] = number.value(raw.double(), 0)
        else:
            fixed = number.fixed_value(shape, 0).double()  # a scalar without the rounding of float32
            values[name] = fixed if isinstance(number, Vector) else torch.full_like(fixed, number.init_at(0))
    for name in operator.by_key:
        values[name] = values[name].expand(-1, -1, inputs.k.shape[-2], -1)
    return values


def _equal_signals(operator: Operator, inputs: Inputs) -> Inputs:
    def repeat_first(x: Tensor) -> Tensor:
        return x[..., : x.shape[-1] // operator.signals.count].repeat(1, 1, 1, operator.signals.count)

    return inputs._replace(q=repeat_first(inputs.q), k=repeat_first(inputs.k))


def _first_signal(operator: Operator, inputs: Inputs) -> Inputs:
    kept = torch.arange(inputs.q.shape[-1]) < inputs.q.shape[-1] // operator.signals.count
    return inputs._replace(q=inputs.q * kept, k=inputs.k * kept)


def _unit(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt()


_WHERE: Mapping[Where, Callable[[Operator, Inputs], Inputs]] = {
    "anywhere": lambda _, x: x,
    "logits above 0": lambda _, x: x._replace(q=x.q.abs(), k=x.k.abs()),
    "logits below 0": lambda _, x: x._replace(q=x.q.abs(), k=-x.k.abs()),
    "logits of 0": lambda _, x: x._replace(q=0 * x.q, k=0 * x.k),
    "small logits": lambda _, x: x._replace(q=1e-3 * x.q, k=1e-3 * x.k),
    "equal signals": _equal_signals,
    "first signal": _first_signal,
    "unit": lambda _, x: x._replace(q=_unit(x.q), k=_unit(x.k)),
}


LAWS = (Law("limits", "With a limit's numbers, on its inputs, it is the operator that the limit names.", _limits),)
