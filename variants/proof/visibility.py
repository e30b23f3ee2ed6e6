"""Laws of what a query may see: the future, the rest of the sequence, hidden keys, nothing."""

import torch
from torch import Tensor

from variants.attend import attend
from variants.operator import Operator, causal
from variants.proof.inputs import Inputs, random_inputs
from variants.proof.law import Law, finite, near

_HIDDEN = 9


def output(operator: Operator, inputs: Inputs, mask: Tensor | None = None) -> Tensor:
    """[B, H, T, D]."""
    return attend(operator, inputs.q, inputs.k, inputs.v, mask=mask, numbers=inputs.numbers).output


def _causality(operator: Operator) -> None:
    inputs, other = random_inputs(operator), random_inputs(operator, seed=1)
    came = output(operator, inputs.joined(other, 7))[:, :, :7]
    near(came, output(operator, inputs)[:, :, :7], "another future, from the eighth of 13 tokens on")


def _prefix(operator: Operator) -> None:
    inputs = random_inputs(operator)
    expected = output(operator, inputs)[:, :, :7]
    near(output(operator, inputs.prefix(7)), expected, "the first 7 of 13 tokens", rtol=1e-11, atol=1e-13)


def _hidden(operator: Operator) -> None:
    inputs = random_inputs(operator)
    mask = causal(13, 13).clone()
    mask[:, _HIDDEN] = False
    mask[_HIDDEN, _HIDDEN - 2] = True
    expected = _with_gradients(operator, inputs, mask)
    for garbage in (0.0, 1e4, -1e30):
        k, v = inputs.k.clone(), inputs.v.clone()
        k[:, :, _HIDDEN], v[:, :, _HIDDEN] = garbage, garbage
        came = _with_gradients(operator, inputs._replace(k=k, v=v), mask)
        for name, value in came.items():
            near(value, expected[name], f"{garbage:g} in key and value 9 of 13, which is hidden: {name}")


def _with_gradients(operator: Operator, inputs: Inputs, mask: Tensor) -> dict[str, Tensor]:
    """The output, and the gradient of its squares for queries, the other keys and values, and numbers."""
    there = inputs.following()
    came = output(operator, there, mask)
    found = gradients(came.square().sum(), there)
    visible = [j for j in range(inputs.k.shape[2]) if j != _HIDDEN]
    for name in ("gradient of k", "gradient of v"):
        found[name] = found[name][:, :, visible]
    return {"output": came.detach(), **found}


def gradients(loss: Tensor, inputs: Inputs) -> dict[str, Tensor]:
    """The gradient for every input and number, 0 where there is none."""
    tensors = inputs.tensors()
    if not loss.requires_grad:
        return {f"gradient of {name}": torch.zeros_like(x) for name, x in tensors.items()}
    found = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True, materialize_grads=True)
    return {f"gradient of {name}": x for name, x in zip(tensors, found, strict=True)}


def _blind(operator: Operator) -> None:
    """One query among others, and a whole sequence."""
    for dtype in (torch.float64, torch.float32):
        inputs = random_inputs(operator).to(dtype).following()
        mask = causal(13, 13).repeat(2, 1, 1, 1)
        mask[0, 0, 5] = False
        mask[1] = False
        came = output(operator, inputs, mask)
        words = f"queries that see nothing, {dtype}"
        finite(came, f"the output of {words}")
        for name, found in gradients(came.square().sum(), inputs).items():
            finite(found, f"the {name}, for {words}")


LAWS = (
    Law("causality", "What comes later changes nothing, not by one bit.", _causality),
    Law("prefix", "A prefix alone gets what it gets in the whole sequence.", _prefix),
    Law("hidden keys", "What a hidden key and value hold leaves no trace in outputs and gradients.", _hidden),
    Law("blind rows", "Queries that see nothing have finite outputs and gradients.", _blind),
)
