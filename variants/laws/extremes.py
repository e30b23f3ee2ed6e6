"""Laws of finite numbers: on ordinary inputs and on large logits."""

import torch

from variants.laws.inputs import Inputs, random_inputs
from variants.laws.law import Law, NothingStated, finite
from variants.laws.visibility import gradients, output
from variants.operator import Operator, by_stage

_SCALES = {1e2: 10.0, 1e4: 100.0}
"""Factor of queries and keys that gives logits of this size."""
_LARGEST = 8.0
"""Bound of a logit of standard normal channels, in multiples of its size."""


def _finite(operator: Operator) -> None:
    _all_finite(operator, random_inputs(operator), "on ordinary inputs")


def _large(operator: Operator) -> None:
    """Check in float32. If weights are not shared, check only scores that float32 can hold."""
    stated = False
    for size, scale in _SCALES.items():
        inputs = random_inputs(operator, seed=11, scale=scale).to(torch.float32)
        if operator.normaliser.shared or _fits_float32(operator, inputs, _LARGEST * size):
            stated = True
            _all_finite(operator, inputs, f"in float32, on logits of about +-{size:g}")
    if not stated:
        raise NothingStated


def _fits_float32(operator: Operator, inputs: Inputs, size: float) -> bool:
    """Return True if float32 holds the product of two scores of logits +-size, as in a gradient."""
    own = {name: value.double() for name, value in by_stage(inputs.numbers)["score"].items()}
    a = torch.tensor((-size, size), dtype=torch.float64).expand(*inputs.q.shape[:3], 2)
    f = operator.score.scores(a, torch.ones_like(a, dtype=torch.bool), **own).values()
    return bool(f.abs().max() < torch.finfo(torch.float32).max ** 0.5)


def _all_finite(operator: Operator, inputs: Inputs, words: str) -> None:
    there = inputs.following()
    came = output(operator, there)
    finite(came, f"the output {words}")
    for name, found in gradients(came.sum(), there).items():
        finite(found, f"the {name} {words}")


FINITE = Law("finite", "On ordinary inputs outputs and gradients are finite.", _finite)
LARGE = Law("large logits", "On logits of 100 and 10 000 outputs and gradients are finite in float32.", _large)
