"""All parameters of a model as two vectors, so that an optimiser step is a few kernels however many tensors there are.

A small model spends a tenth of its step on one kernel call per tensor; the values are the same either way. Their
gradients and the loss lie in one buffer, so that processes that share a batch add them up in one operation.
"""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from variants import Transformer

_ALIGNED = 64
"""Elements: a gradient begins at a multiple of these, where a GPU's wide loads can be used."""


@final
class Flat:
    """Moves the parameters of `model` into vectors; they and their gradients become views of these.

    `decayed` holds the weight matrices, `kept` biases, norms and what the model spares; either may be empty.
    """

    def __init__(self, model: Transformer) -> None:
        spared = {id(parameter) for parameter in model.undecayed()}
        decayed = [p for p in model.parameters() if p.ndim > 1 and id(p) not in spared]
        kept = [p for p in model.parameters() if p.ndim <= 1 or id(p) in spared]
        start = _aligned(sum(p.numel() for p in decayed))
        end = start + sum(p.numel() for p in kept)
        self._gradient_and_loss = next(model.parameters()).new_zeros(end + 1)
        self.decayed = [_joined(decayed, self._gradient_and_loss)] if decayed else []
        self.kept = [_joined(kept, self._gradient_and_loss[start:])] if kept else []

    def zero_gradients(self) -> None:
        """Forget the gradients of the last step."""
        self._gradient_and_loss.zero_()

    def with_loss(self, loss: Tensor) -> Tensor:
        """The whole gradient and, as the last entry, `loss`: one vector, whose changes are the gradient's."""
        self._gradient_and_loss[-1] = loss
        return self._gradient_and_loss

    def clip_gradients(self, limit: float | None) -> float:
        """The Euclidean norm of the whole gradient, which is then scaled down to `limit` where it is longer."""
        norm = float(torch.linalg.vector_norm(torch.stack([g.norm() for g in self._gradients()])))
        if limit is not None and norm > limit:
            for gradient in self._gradients():
                gradient.mul_(limit / norm)
        return norm

    def finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return all(bool(vector.isfinite().all()) for vector in (*self.decayed, *self.kept))

    def _gradients(self) -> list[Tensor]:
        return [vector.grad for vector in (*self.decayed, *self.kept) if vector.grad is not None]


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


@torch.no_grad()
def _joined(parameters: Sequence[nn.Parameter], gradients: Tensor) -> nn.Parameter:
    """One vector of `parameters`, whose gradient is the beginning of `gradients`."""
    vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    vector.grad = gradients[: vector.numel()]
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = vector.data[start:end].view_as(parameter)
        parameter.grad = vector.grad[start:end].view_as(parameter)
        start = end
    return vector
