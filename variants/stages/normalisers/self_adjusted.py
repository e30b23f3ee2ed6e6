"""Self-adjusting softmax: softmax times a factor that grows with the logit.

    w_ij = (a_ij - min(low_i, 0)) / (max(high_i, 0) - min(low_i, 0)) p_ij          p = softmax of a

low and high are the smallest and largest a of the visible keys. If all are 0, the factor 0 / 0 is 1. Gradients flow
through both. normalised=False is the plain variant w = a p. Rows do not sum to one: the factor is at most 1.
"""

import math
from typing import ClassVar, Literal

import torch

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class SelfAdjusted(Normaliser):
    """A row sums to 0..1; in the plain variant to anything."""

    source: ClassVar[str] = "Self-Adjust Softmax (arXiv 2502.18277); Scaled Signed Averaging, table 1"
    needs: ClassVar = "exponential"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "With one visible key the weight is 1 where its logit is above 0 and 0 where it is below.",
        "Where hidden logits are large negative numbers and not left out, they become the smallest of the row and all "
        "factors are nearly 1.",
    )

    kind: Literal["self_adjusted"] = "self_adjusted"
    normalised: bool = True
    """True if the factor lies between 0 and 1."""

    def weights(self, scores: Scores) -> AttentionWeights:
        p = scores.relative().f
        total = p.sum(-1, keepdim=True)
        p = p / total.masked_fill(total == 0, 1)
        visible = scores.visible_log()
        a = visible.masked_fill(~scores.mask, 0)
        if not self.normalised:
            return AttentionWeights(a * p, None)
        low = a.amin(-1, keepdim=True).clamp(max=0)  # hidden entries are 0 and change neither
        high = a.amax(-1, keepdim=True).clamp(min=0)
        zero = high == low
        factor = torch.where(zero, 1, (a - low) / (high - low).masked_fill(zero, 1))
        return AttentionWeights(factor * p, None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        a, total = [math.log(each) for each in f], sum(f)
        if not self.normalised:
            return [each * one / total for each, one in zip(a, f, strict=True)], 0.0
        low, high = min([*a, 0.0]), max([*a, 0.0])
        factors = [(each - low) / (high - low) if high > low else 1.0 for each in a]
        return [factor * each / total for factor, each in zip(factors, f, strict=True)], 0.0
