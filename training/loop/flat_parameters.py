"""All parameters of a model as a few vectors, so that an optimiser step is a few kernels.

Gradients and loss lie in one buffer, which ranks sum in one operation.
"""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ablate.training.optimisers.optimiser import ParameterVectors
from ablate.variants import Attention
from ablate.variants.model.foreign import Model

_ALIGNED = 64
"""Each gradient begins at a multiple of this number of elements, for wide loads of a GPU."""


@final
class Flat:
    """Moves the parameters of `model` into vectors. Parameters and gradients become views of them.

    Biases, norms and `undecayed_parameters` have no weight decay. `by_matrix` separates the layers' weight matrices.
    """

    def __init__(self, model: Model, *, by_matrix: bool = False) -> None:
        spared = {id(parameter) for parameter in model.undecayed_parameters()}
        rows = _hidden_rows(model) if by_matrix else {}
        hidden = [p for p in model.parameters() if id(p) in rows]
        others = [p for p in model.parameters() if id(p) not in rows]
        decayed = [p for p in others if p.ndim > 1 and id(p) not in spared]
        kept = [p for p in others if p.ndim <= 1 or id(p) in spared]
        starts, end = [], 0
        for parameters in (decayed, kept, hidden):
            starts.append(-(-end // _ALIGNED) * _ALIGNED)
            end = starts[-1] + sum(p.numel() for p in parameters) if parameters else end
        self._gradient_and_loss = next(model.parameters()).new_zeros(end + 1)
        joined = [
            _join(parameters, self._gradient_and_loss[start:]) if parameters else None
            for parameters, start in zip((decayed, kept, hidden), starts, strict=True)
        ]
        self.weights = ParameterVectors(
            [] if joined[0] is None else [joined[0]],
            [] if joined[1] is None else [joined[1]],
            joined[2],
            tuple((count, p.shape[1]) for p in hidden for count in rows[id(p)]),
        )

    def zero_gradients(self) -> None:
        """Set gradients to 0."""
        self._gradient_and_loss.zero_()

    def with_loss(self, loss: Float[Tensor, ""]) -> Float[Tensor, " gradients_and_loss"]:
        """Return the gradient with `loss` as its last entry; a view, so changes reach the gradient."""
        self._gradient_and_loss[-1] = loss
        return self._gradient_and_loss

    def clip_gradients(self, limit: float | None) -> Float[Tensor, ""]:
        """Return the Euclidean norm of the gradient, and scale the gradient down to `limit` if it is longer.

        The host does not wait for the norm.
        """
        norm: Tensor = torch.linalg.vector_norm(torch.stack([g.norm() for g in self._gradients()]))
        if limit is not None:
            scale = torch.where(norm > limit, limit / norm.double(), 1.0)
            for gradient in self._gradients():
                gradient.mul_(scale)
        return norm

    def finite(self) -> bool:
        """Return True if every parameter is finite."""
        return all(bool(vector.isfinite().all()) for vector in self.weights.vectors())

    def _gradients(self) -> list[Tensor]:
        return [vector.grad for vector in self.weights.vectors() if vector.grad is not None]


def _hidden_rows(model: Model) -> dict[int, list[int]]:
    """Map the id of each weight matrix of the layers to the numbers of rows of the matrices stacked in it."""
    rows: dict[int, list[int]] = {}
    for block in model.blocks():
        rows |= {id(each.weight): [len(each.weight)] for each in block.modules() if isinstance(each, nn.Linear)}
        attention = block.attention
        if not isinstance(attention, Attention):
            continue
        heads = (attention.heads, attention.key_heads)
        rows[id(attention.qkv.weight)] = [attention.channels * count for count in (*heads, attention.key_heads)]
        if attention.gate is not None:
            rows[id(attention.gate.weight)] = [attention.gate_channels * count for count in heads]
    return rows


@torch.no_grad()
def _join(parameters: Sequence[nn.Parameter], gradients: Float[Tensor, " gradients"]) -> nn.Parameter:
    """Join `parameters` in one vector, whose gradient is the beginning of `gradients`."""
    vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    vector.grad = gradients[: vector.numel()]
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = vector.data[start:end].view_as(parameter)
        parameter.grad = vector.grad[start:end].view_as(parameter)
        start = end
    return vector
