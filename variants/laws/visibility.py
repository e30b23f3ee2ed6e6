"""Laws of visibility: the future, hidden keys, queries that see nothing; and that outputs are finite."""

import torch
from torch import Tensor

from ablate.variants.axes import HeadOutput
from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.laws.law import Law, LawBroken, NothingStated, finite, near
from ablate.variants.operator import Operator, by_stage, causal

_LENGTH = 13
_HIDDEN = 9
_SCALES = {1e2: 10.0, 1e4: 100.0}
"""Factor of queries and keys that gives logits of this size."""
_LARGEST = 8.0
"""Bound of a logit of standard normal channels, in multiples of its size."""


def output(operator: Operator, inputs: Inputs, mask: Tensor | None = None) -> HeadOutput:
    """Compute the definition."""
    return inputs.attend(operator, mask=mask).output


def _causality(operator: Operator) -> None:
    inputs, other = random_inputs(operator), random_inputs(operator, seed=1)
    came = output(operator, inputs.join(other, 7))[:, :, :7]
    expected = output(operator, inputs)
    if not torch.equal(came, expected[:, :, :7]):
        _tell_leak(operator, inputs, other, expected)
    near(came, expected[:, :, :7], "another future, from the eighth of 13 tokens on")


def _tell_leak(operator: Operator, inputs: Inputs, other: Inputs, before: Tensor) -> None:
    """Raise LawBroken with the first key that an earlier query sees, if one alone shows it."""
    for key in range(7, _LENGTH):
        alone = inputs.join(other.join(inputs, key + 1), key)
        moved = (output(operator, alone) - before)[:, :, :key].abs().amax((0, 3))
        if moved.amax() > 0:
            head, query = divmod(int(moved.argmax()), key)
            raise LawBroken(
                f"head {head}, query {query} sees key {key}, which comes later: with another token there its output "
                f"moves by {moved.amax():.3g}"
            )


def _prefix(operator: Operator) -> None:
    inputs = random_inputs(operator)
    expected = output(operator, inputs)[:, :, :7]
    words = "the first 7 of 13 tokens alone, without the hidden keys that follow"
    near(output(operator, inputs.prefix(7)), expected, words, rtol=1e-11, atol=1e-13)


def _hidden(operator: Operator) -> None:
    """First a token that others do not see, then one that is hidden from itself too, as padding is."""
    inputs, other = random_inputs(operator), random_inputs(operator, seed=1)
    mask = causal(13, 13).clone()
    mask[:, _HIDDEN] = False
    expected = _with_gradients(operator, inputs, mask)
    for garbage in (0.0, 1e4, -1e30):
        k, v = _fill_hidden(inputs.k, garbage), _fill_hidden(inputs.v, garbage)
        came = _with_gradients(operator, inputs._replace(k=k, v=v), mask)
        for name, value in came.items():
            words = f"the {name}, with {garbage:g} in key and value of the hidden token 9 of 13"
            near(value, expected[name], words)
    expected = _with_gradients(operator, inputs, mask, of_others=True)
    for garbage in (0.0, 20.0, -20.0):
        numbers = {name: _one_other(value, other.numbers[name]) for name, value in inputs.numbers.items()}
        q, k, v = (_fill_hidden(x, garbage) for x in (inputs.q, inputs.k, inputs.v))
        came = _with_gradients(operator, Inputs(q, k, v, numbers), mask, of_others=True)
        for name, value in came.items():
            what = f"{garbage:g} in query, key and value of the hidden token 9 of 13, and other numbers of it"
            words = f"the {name}, with {what}"
            near(value, expected[name], words)


def _fill_hidden(x: Tensor, value: float) -> Tensor:
    """[B, H, T, D] with `value` in the hidden token's place."""
    return x.index_fill(2, torch.tensor(_HIDDEN), value)


def _one_other(x: Tensor, other: Tensor) -> Tensor:
    """A number with another value at the hidden token, where it varies by token."""
    there = torch.tensor([_HIDDEN])
    return x.index_copy(2, there, other.index_select(2, there)) if x.shape[2] == _LENGTH else x


def _with_gradients(operator: Operator, inputs: Inputs, mask: Tensor, *, of_others: bool = False) -> dict[str, Tensor]:
    """Compute output and gradients without the hidden key and value; `of_others` leaves out its query, too."""
    there = inputs.following()
    came = output(operator, there, mask)
    others = [j for j in range(_LENGTH) if j != _HIDDEN]
    came = came[:, :, others] if of_others else came
    slopes = gradients(came.square().sum(), there)
    for name, gradient in slopes.items():
        hidden = name in ("gradient of k", "gradient of v") or (of_others and gradient.shape[2] == _LENGTH)
        slopes[name] = gradient[:, :, others] if hidden else gradient
    return {"output": came.detach(), **slopes}


def gradients(loss: Tensor, inputs: Inputs) -> dict[str, Tensor]:
    """Return the gradient for every input and number, 0 if there is none."""
    tensors = inputs.tensors()
    if not loss.requires_grad:
        return {f"gradient of {name}": torch.zeros_like(x) for name, x in tensors.items()}
    slopes = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True, materialize_grads=True)
    return {f"gradient of {name}": x for name, x in zip(tensors, slopes, strict=True)}


def _blind(operator: Operator) -> None:
    for dtype in (torch.float64, torch.float32):
        inputs = random_inputs(operator).to(dtype)
        mask = causal(13, 13).repeat(2, 1, 1, 1)
        mask[0, 0, 5] = False
        mask[1] = False
        _all_finite(operator, inputs, f"of queries that see nothing, {dtype}", mask)


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


def _all_finite(operator: Operator, inputs: Inputs, words: str, mask: Tensor | None = None) -> None:
    there = inputs.following()
    came = output(operator, there, mask)
    finite(came, f"the output {words}")
    for name, gradient in gradients(came.sum(), there).items():
        finite(gradient, f"the {name} {words}")


FINITE = Law("finite", "On ordinary inputs outputs and gradients are finite.", _finite)
LARGE = Law("large logits", "On logits of 100 and 10 000 outputs and gradients are finite in float32.", _large)
LAWS = (
    Law("causality", "What comes later changes nothing, not by one bit.", _causality),
    Law("prefix", "A prefix alone gets what it gets in the whole sequence.", _prefix),
    Law("hidden keys", "Finite garbage in a hidden token leaves no trace in what others get.", _hidden),
    Law("blind rows", "Queries that see nothing have finite outputs and gradients.", _blind),
)
