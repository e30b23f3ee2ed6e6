"""Divide by the sum over visible keys: weights are a distribution.

w_ij = f_ij / sum_j f_ij          a query that sees nothing, or whose scores are all 0, gets 0
"""

from typing import ClassVar, Literal

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Total(Normaliser):
    """Weights sum to one over the visible keys."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"
    scale_free: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    kind: Literal["total"] = "total"

    def weights(self, scores: Scores) -> AttentionWeights:
        f = scores.relative().f
        total = f.sum(-1, keepdim=True)
        return AttentionWeights(f / total.masked_fill(total == 0, 1), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        total = sum(f)
        return [each / total if total else 0.0 for each in f], 0.0
