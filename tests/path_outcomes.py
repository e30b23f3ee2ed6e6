"""Outcomes of execution paths on random inputs, for comparison with the definition."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from variants import Heads, Operator, causal
from variants.attend import definition, prepare
from variants.laws.inputs import Inputs, random_inputs
from variants.operator import NumberValues
from variants.stages.positions.none import NoPositions

Run = Callable[[Operator, Heads, NumberValues], Tensor]


def outcome(operator: Operator, run: Run, inputs: Inputs, mask: Tensor | None = None) -> dict[str, Tensor]:
    """The output, and the gradient of its squares for every input and number."""
    given = inputs.following()
    heads = Heads(*prepare(operator, given.q, given.k, NoPositions(), given.numbers), given.v, mask)
    output = run(operator, heads, given.numbers)
    output.square().sum().backward()
    return {"output": output.detach()} | {
        name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in given.tensors().items()
    }


def defined(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
    return definition(operator, heads, numbers).output


def masks(length: int) -> dict[str, Tensor | None]:
    keys = torch.ones(2, 1, 1, length, dtype=torch.bool)
    keys[0, ..., length // 2 :], keys[1, ..., 0] = False, False
    holes = causal(length, length).clone()
    holes[length // 2, 0] = False
    return {"none": None, "padding": keys & causal(length, length), "encoder": keys, "holes": holes}


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, notes the most entries that one result of an operation has."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            self.entries = max(self.entries, found.numel())
        return found


def most_entries(operator: Operator, run: Run, length: int) -> int:
    """Return the size of the largest result of an operation, forward and backward."""
    inputs = random_inputs(operator, length=length)
    with Largest() as noted:  # type: ignore[no-untyped-call]
        outcome(operator, run, inputs)
    return noted.entries
