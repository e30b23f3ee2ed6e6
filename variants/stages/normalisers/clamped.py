"""Divide by the size of the sum if it is above one, for scores of both signs.

w_ij = f_ij / max(|sum_j f_ij|, 1)
"""

from typing import ClassVar, Literal

import torch

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Clamped(Normaliser):
    """The size of a row's sum is at most 1; single weights may be larger if signs differ."""

    source: ClassVar[str] = "When Attention Sink Emerges, section 7.3 (Z = max(|sum|, 1))"
    needs: ClassVar = "any"
    averages: ClassVar[bool] = True

    kind: Literal["clamped"] = "clamped"

    def weights(self, scores: Scores) -> AttentionWeights:
        found = scores.relative()
        total = found.f.sum(-1, keepdim=True).abs()
        return AttentionWeights(found.f / torch.maximum(total, found.unit()), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        total = max(abs(sum(f)), 1.0)
        return [each / total for each in f], 0.0
