"""AdamW, which every paper here trains with, and its form without bias correction."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from ablate.training.optimisers.optimiser import Beta, Optimiser, ParameterVectors


class AdamW(Optimiser):
    """Adam with decoupled weight decay; without decay, plain Adam."""

    kind: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    """The peak learning rate."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Decay of the running means of gradients and of their squares."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the mean square."""
    weight_decay: NonNegativeFloat = 0.0
    """Decay of matrices and embeddings, times the rate."""

    def build(self, weights: ParameterVectors) -> torch.optim.Optimizer:
        groups = weights.groups(self.weight_decay)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)


class UncorrectedAdamW(Optimiser):
    """AdamW whose running means are not corrected for having begun at zero: BERT's, and BabyBERTa's.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2        m = v = 0 before the first step
        p <- p - lr m / (sqrt(v) + eps)     then p <- (1 - lr weight_decay) p

    The first step is (1 - beta1) / sqrt(1 - beta2) of Adam's, three times as large at the usual betas. The effect lasts
    about 1 / (1 - beta2) steps, so use a warm-up. It is `AdamW(correct_bias=False)` of transformers 4.3, with its
    defaults. Decay comes after the update, and shrinks it too; in PyTorch's AdamW it comes before.
    """

    kind: Literal["uncorrected_adamw"] = "uncorrected_adamw"
    lr: PositiveFloat = 1e-3
    """The peak learning rate."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Decay of the running means of gradients and of their squares."""
    eps: PositiveFloat = 1e-6
    """Added to the root of the mean square."""
    weight_decay: NonNegativeFloat = 0.0
    """Decay of matrices and embeddings, times the rate."""

    def build(self, weights: ParameterVectors) -> torch.optim.Optimizer:
        return _UncorrectedMomentum(weights.groups(self.weight_decay), self)


class _UncorrectedMomentum(torch.optim.Optimizer):
    def __init__(self, groups: list[dict[str, Any]], spec: UncorrectedAdamW) -> None:
        super().__init__(groups, {"lr": spec.lr})
        self._betas, self._eps = spec.betas, spec.eps

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002  (PyTorch's signature)
        for group in self.param_groups:
            for vector in group["params"]:
                self._move(vector, group["lr"], group["weight_decay"])

    def _move(self, vector: Float[Tensor, " entries"], lr: float, weight_decay: float) -> None:
        state, gradient = self.state[vector], vector.grad
        assert gradient is not None
        if not state:
            state["mean"], state["square"] = torch.zeros_like(vector), torch.zeros_like(vector)
        first, second = self._betas
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        vector.addcdiv_(state["mean"], state["square"].sqrt().add_(self._eps), value=-lr)
        if weight_decay:
            vector.mul_(1 - lr * weight_decay)
