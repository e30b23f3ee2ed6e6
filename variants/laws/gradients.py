"""Laws of the gradient: it is the slope of the output, also at a tie with the relevance threshold.

An operator may have kinks, such as a maximum or a sign. If the central differences of two step sizes disagree, the
line crosses a kink and the law draws other inputs. An operator that is smooth nowhere breaks the law.
"""

import torch
from torch import Tensor

from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.laws.law import Law, LawBroken, NothingStated, near
from ablate.variants.laws.visibility import gradients, output
from ablate.variants.number import Matrix
from ablate.variants.operator import Operator, by_stage

_STEP = 2e-4
_SEEDS = 7


def _slopes(operator: Operator) -> None:
    """Check along a random direction of every input and number by itself."""
    for name in random_inputs(operator, length=1).tensors():
        if not any(_slope(operator, name, seed) for seed in range(_SEEDS)):
            raise LawBroken(f"expected a slope, came kinks at {_SEEDS} random points in a row, for {name}")


def _slope(operator: Operator, name: str, seed: int) -> bool:
    """Compare a slope with the gradient; return False at a kink."""
    inputs = random_inputs(operator, batch=1, length=5, seed=seed)
    made = torch.Generator().manual_seed(100 + seed)
    along = torch.randn(inputs.tensors()[name].shape, generator=made, dtype=torch.float64)
    along /= along.norm()
    read = torch.randn(inputs.v.shape, generator=made, dtype=torch.float64)
    coarse, fine = _differences(operator, inputs, name, along, read)
    if (coarse - fine).abs() > 1e-8 + 1e-7 * fine.abs():
        return False
    there = inputs.following()
    loss = (output(operator, there) * read).sum()
    came = (gradients(loss, there)[f"gradient of {name}"] * along).sum()
    near(came, fine, f"the slope along a random direction of {name}", rtol=1e-6, atol=1e-7)
    return True


def _differences(operator: Operator, inputs: Inputs, name: str, along: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the slope of the sum of output x `read` by central differences of two step sizes, in one batch."""
    shifts = _STEP * torch.tensor((-4, -2, -1, 1, 2, 4), dtype=torch.float64)
    shifted = inputs.tensors()[name] + shifts[:, None, None, None] * along
    if isinstance(operator.numbers().get(name), Matrix):  # a matrix is one for all sequences
        outputs = torch.cat([output(operator, inputs.replace({name: each[None]})) for each in shifted])
    else:
        whole = {each: x.expand(len(shifts), *x.shape[1:]) for each, x in inputs.tensors().items() if each in "qkv"}
        outputs = output(operator, inputs.replace({**whole, name: shifted}))
    a, b, c, d, e, f = (outputs * read).sum((1, 2, 3))
    return (8 * (e - b) - (f - a)) / (24 * _STEP), (8 * (d - c) - (e - b)) / (12 * _STEP)


def _ties(operator: Operator) -> None:
    """Check that a logit at the relevance threshold has the gradient of one just above it."""
    inputs = random_inputs(operator, length=4, seed=6)
    own = by_stage(inputs.numbers)["normaliser"]
    gamma = operator.normaliser.relevance(**own)
    if gamma is None:
        raise NothingStated
    a = gamma.expand(inputs.q.shape[0], inputs.q.shape[1], 4, 4)
    mask, numbers = torch.ones(4, 4, dtype=torch.bool), by_stage(inputs.numbers)["score"]
    at, next_to = (operator.score.scores(x, mask, **numbers).visible_log() for x in (a, a + 1e-9))
    above = torch.where(next_to >= at, 1e-9, -1e-9)  # a score may fall where its logit rises
    came, expected = (_map_gradient(operator, x, inputs) for x in (a, a + above))
    near(came, expected, "logits at the relevance threshold, against logits 1e-9 above it", rtol=1e-6, atol=1e-7)


def _map_gradient(operator: Operator, a: Tensor, inputs: Inputs) -> Tensor:
    """Compute the gradient for logits [B, H, T, T] of a random sum of weights and ground weights."""
    a = a.detach().clone().requires_grad_()
    mask = torch.ones(a.shape[-2:], dtype=torch.bool).tril()
    scores = operator.score.scores(a.masked_fill(~mask, 0), mask, **by_stage(inputs.numbers)["score"])
    weights = operator.normaliser.weights(scores, **by_stage(inputs.numbers)["normaliser"])
    made = torch.Generator().manual_seed(8)
    read = torch.randn(weights.keys.shape, generator=made, dtype=torch.float64)
    total = (weights.keys * read).sum() + (0 if weights.ground is None else (2 * weights.ground).sum())
    (gradient,) = torch.autograd.grad(total, a)
    return gradient


LAWS = (
    Law("slopes", "The gradient of every input and number is the slope of the output.", _slopes),
    Law("ties", "A logit at the relevance threshold counts as relevant.", _ties),
)
