"""AdamW: what every paper here trains with."""

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat

from runners.optimisers.optimiser import Beta, Optimiser, ParameterVectors, Stepping


class AdamW(Optimiser):
    """Adam with decoupled weight decay; without decay, plain Adam."""

    kind: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0

    def build(self, weights: ParameterVectors) -> Stepping:
        groups = weights.groups(self.weight_decay)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)
