"""Nothing is divided: the scores are the weights.

w_ij = f_ij          Z_i = 1
"""

from typing import ClassVar, Literal

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class NoNormaliser(Normaliser):
    """Z = 1: keys do not compete."""

    source: ClassVar[str] = "When Attention Sink Emerges, table 4 (Z = 1)"
    needs: ClassVar = "any"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Outputs grow with the number of visible keys, and with an exponential score without bound.",
    )
    shared: ClassVar[bool] = False

    kind: Literal["none"] = "none"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights(scores.values(), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        return f, 0.0
