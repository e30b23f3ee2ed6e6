"""Muon: momentum with every matrix replaced by the nearest one with singular values near 1.

    B <- mu B + (1 - mu) G              U = (1 - mu) G + mu B with Nesterov's momentum, else B
    X = U / |U|                         Frobenius norm; then so many times
    X <- a X + (b A + c A A) X          A = X X^T, (a, b, c) = (3.4445, -4.7750, 2.0315)
    W <- (1 - lr weight_decay) W - lr s X

The iteration runs on the wide form of a matrix. The quintic does not converge, but it brings singular values that are
not tiny to about [0.7, 1.2] in five rounds. s depends on the shape, outputs x inputs:

    rms         0.2 sqrt(max(outputs, inputs))    entries of about 0.2, as AdamW's are, so that its lr and decay serve
    spectral    sqrt(max(1, outputs / inputs))    a spectral norm that grows where there are more outputs than inputs

Only weight matrices of the layers are updated this way; queries, keys and values are separate matrices, and so are
those of a gate. AdamW updates embeddings, read-in and read-out (with RoBERTa's dense layer), biases, norms, and the
operators' numbers and kernels.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from ablate.training.optimisers.optimiser import LR_SHARE, Beta, Optimiser, ParameterVectors, Together

_QUINTIC = (3.4445, -4.7750, 2.0315)
_LEAST = 1e-7
"""Smallest norm to divide by, so that a zero gradient gives no update."""


class Muon(Optimiser):
    """Orthogonalised momentum for the layers' weight matrices, AdamW for the rest.

    Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024). It trains with
    `scale="spectral"`, lr 0.02 and another rate for the rest. Liu et al., "Muon is scalable for LLM training" (arXiv
    2502.16982), train with `scale="rms"` and AdamW's rate and decay. `torch.optim.Muon` computes one matrix at a time
    in bfloat16; here all matrices of one shape are computed at once.
    """

    by_matrix: ClassVar[bool] = True

    kind: Literal["muon"] = "muon"
    lr: PositiveFloat = 1e-3
    """The peak learning rate of the layers' matrices."""
    momentum: Beta = 0.95
    """Decay of the running mean of gradients."""
    nesterov: bool = True
    """Look one step ahead with the momentum."""
    rounds: PositiveInt = 5
    """Rounds of the iteration."""
    scale: Literal["rms", "spectral"] = "rms"
    """Scale of an update by the shape of its matrix."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the iteration's matrix products; the sources use bfloat16. The update itself is float32."""
    weight_decay: NonNegativeFloat = 0.0
    """Decay of matrices and embeddings."""
    rest_lr: PositiveFloat | None = None
    """Peak rate of AdamW's parameters, with the same schedule; None: as `lr`."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """AdamW's."""
    eps: PositiveFloat = 1e-8
    """AdamW's."""

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.rest_lr == self.lr:
            self.set_normal_form(rest_lr=None)
        if not self.momentum:
            self.set_normal_form(nesterov=False)  # without momentum the update is the gradient either way
        return self

    def build(self, weights: ParameterVectors) -> Together:
        share = 1.0 if self.rest_lr is None else self.rest_lr / self.lr
        groups = [{**group, LR_SHARE: share} for group in weights.groups(self.weight_decay)]
        rest = torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)
        assert weights.hidden is not None
        return Together([_OrthogonalMomentum(weights.hidden, weights.shapes, self), rest])

    def size(self, outputs: int, inputs: int) -> float:
        """Return the factor s of an orthogonal update."""
        if self.scale == "rms":
            return 0.2 * math.sqrt(max(outputs, inputs))
        return math.sqrt(max(1.0, outputs / inputs))


class _OrthogonalMomentum(torch.optim.Optimizer):
    """Updates matrices of `shapes` that follow one another in `vector`."""

    def __init__(self, vector: Float[Tensor, " entries"], shapes: Sequence[tuple[int, int]], spec: Muon) -> None:
        super().__init__([vector], {"lr": spec.lr})
        self._spec, self._shapes = spec, tuple(shapes)
        self._alike = {shape: [at for at, each in enumerate(shapes) if each == shape] for shape in self._shapes}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  (PyTorch's signature)
        (group,), spec = self.param_groups, self._spec
        (vector,) = group["params"]
        state, gradient, lr = self.state[vector], vector.grad, group["lr"]
        if not state:
            state["momentum"] = torch.zeros_like(vector)
        momentum = state["momentum"].lerp_(gradient, 1 - spec.momentum)
        update = self._update(gradient.lerp(momentum, spec.momentum) if spec.nesterov else momentum)
        if spec.weight_decay:
            vector.mul_(1 - lr * spec.weight_decay)
        vector.add_(update, alpha=-lr)

    def _update(self, vector: Float[Tensor, " entries"]) -> Float[Tensor, " entries"]:
        pieces = torch.split(vector, [outputs * inputs for outputs, inputs in self._shapes])
        dtype, updates = vector.dtype if self._spec.precision == "float32" else torch.bfloat16, dict[int, Tensor]()
        for (outputs, inputs), places in self._alike.items():
            matrices = torch.stack([pieces[at].view(outputs, inputs) for at in places])
            update = orthogonalise(matrices, self._spec.rounds, dtype).to(vector.dtype)
            updates |= zip(places, (update * self._spec.size(outputs, inputs)).flatten(1).unbind(), strict=True)
        return torch.cat([updates[at] for at in range(len(self._shapes))])


def orthogonalise(
    matrices: Float[Tensor, "matrices outputs inputs"], rounds: int, dtype: torch.dtype
) -> Float[Tensor, "matrices outputs inputs"]:
    """Return matrices with the same singular vectors and singular values near 1, in `dtype`."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = (x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=_LEAST)).to(dtype)
    a, b, c = _QUINTIC
    for _ in range(rounds):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
