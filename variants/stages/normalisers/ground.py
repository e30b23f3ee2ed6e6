"""A ground state: it gets the shortfall of keys below the relevance threshold.

    Z_i = sum_j max(f(gamma), f_ij)      w_ij = f_ij / Z_i      w_i0 = sum_j max(0, f(gamma) - f_ij) / Z_i

over visible keys only: the mask acts after the maximum, else every hidden key would add f(gamma). At a tie a = gamma
the key counts as relevant. The shortfall is summed directly, because 1 - sum w cancels in low precision. The ground
state has weight 1 for a query that sees nothing. gamma -> -inf is the plain sum.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from variants.number import Number
from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Ground(Normaliser):
    """Weights sum to one together with the ground state's."""

    source: ClassVar[str] = "Principled Attention, sections 3.1 and 3.2.1"
    needs: ClassVar = "logarithm"
    has_ground: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The products 'linear_elu', 'relu' and 'cosformer' give no logit below 0, so no key falls below the initial "
        "threshold of 0. The ground state is then empty, and it and its value have no gradient.",
    )

    kind: Literal["ground"] = "ground"
    threshold: Number = Number(init=0.0)
    """Relevance threshold gamma; 0 with small logits is close to softmax and its gradients are alive."""

    def relevance(self, *, threshold: Tensor) -> Tensor:
        return threshold

    def weights(self, scores: Scores, *, threshold: Tensor) -> AttentionWeights:
        log_floor = scores.score(threshold)
        visible = scores.visible_log()
        largest = torch.maximum(visible.amax(-1, keepdim=True), log_floor).detach()
        f = (visible - largest).exp()
        floor = (log_floor - largest).exp() * scores.mask
        total = torch.where(visible >= log_floor, f, floor).sum(-1, keepdim=True)
        empty = total == 0
        total = total.masked_fill(empty, 1.0)
        shortfall = (floor - f).relu().sum(-1, keepdim=True)
        return AttentionWeights(f / total, (shortfall / total).masked_fill(empty, 1.0))

    def relevance_oracle(self, *, threshold: float) -> float:
        return threshold

    def oracle(self, f: list[float], score: FloatScore, *, threshold: float) -> tuple[list[float], float]:
        if not f:
            return [], 1.0
        floor = score(threshold)
        total = sum(max(each, floor) for each in f)
        weights = [each / total for each in f]
        return weights, 1 - sum(weights)
