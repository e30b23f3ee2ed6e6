"""A sink: one more logit that every query sees and that has no value.

    Z_i = sum_j f_ij + f(s)      w_ij = f_ij / Z_i      w_i0 = f(s) / Z_i

s is not divided by sqrt(d). A score f(s) below 0 counts as 0. The sink has weight 1 for a query that sees nothing or
whose scores are all 0. A fixed s = 0 is off by one: it adds e^0 = 1 to the sum, and s = ln n adds n. With the
exponential, adding c to all logits and to s changes nothing, and s -> -inf is the plain sum.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from variants.number import Number
from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Sink(Normaliser):
    """Weights sum to one together with the sink's."""

    source: ClassVar[str] = "Affine-Scaled Attention, section 2 (off by one, GPT-OSS)"
    has_ground: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Its mass does not grow with the number of keys, as a ground state's does.",
        "Under a score that is 0 for small logits, such as 'relu', a sink of s = 0 is nothing and has no gradient.",
        "Adding n e^-max to a sum of e^(z - max) overflows where all logits are far below 0; s is part of the maximum.",
    )

    version: ClassVar[int] = 2
    kind: Literal["sink"] = "sink"
    logit: Number = Number(init=0.0, per=("layer", "head"))
    """s: learned per head from 0, where it starts as off by one; fixed with per="constant"."""

    def weights(self, scores: Scores, *, logit: Tensor) -> AttentionWeights:
        found, own = scores.relative_with(logit)
        total = found.f.sum(-1, keepdim=True) + own
        nothing = total == 0
        total = total.masked_fill(nothing, 1)
        return AttentionWeights(found.f / total, (own / total).masked_fill(nothing, 1))

    @staticmethod
    def key_share(log_sum: Tensor, logit: Tensor) -> Tensor:
        """Return the weight of all keys together, from the logarithm of the sum of their exponential scores."""
        return torch.sigmoid(log_sum - logit)

    def oracle(self, f: list[float], score: FloatScore, *, logit: float) -> tuple[list[float], float]:
        own = max(score(logit), 0.0)
        total = sum(f) + own
        return ([each / total for each in f], own / total) if total else ([0.0] * len(f), 1.0)
