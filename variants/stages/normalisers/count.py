"""Divide by the number of visible keys: weights do not grow with the length, and keys do not compete.

w_ij = f_ij / K_i          a learned key counts as one of the K_i
"""

from typing import ClassVar, Literal

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class Count(Normaliser):
    """The mean of f v over the visible keys; a query that sees nothing gets 0."""

    source: ClassVar[str] = "Replacing softmax with ReLU in Vision Transformers, section 3 (1 / L)"
    needs: ClassVar = "any"
    averages: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    kind: Literal["count"] = "count"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.values() / scores.visible_count.clamp(min=1), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        return [each / len(f) for each in f], 0.0
