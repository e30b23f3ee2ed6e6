"""Divide by the sum of sizes, for scores of both signs.

    w_ij = f_ij / sum_j |f_ij|          a query that sees nothing, or whose scores are all 0, gets 0

If a score has a size and a sign, as the signed exponential, its size counts also if its sign is 0.
"""

from typing import ClassVar, Literal

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Absolute(Normaliser):
    """The sizes of the weights sum to one; no epsilon."""

    source: ClassVar[str] = "Integral Transformer, eq. 4 (Cog)"
    needs: ClassVar = "signs"
    scale_free: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    kind: Literal["absolute"] = "absolute"

    def weights(self, scores: Scores) -> AttentionWeights:
        found = scores.relative()
        total = found.size.sum(-1, keepdim=True)
        return AttentionWeights(found.f / total.masked_fill(total == 0, 1), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        total = sum(f)
        return [each / total if total else 0.0 for each in f], 0.0
