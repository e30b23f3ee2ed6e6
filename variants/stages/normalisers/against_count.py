"""Each key against the number of visible keys: the sigmoid of its logit less ln K.

    w_ij = f_ij / (f_ij + K_i)          with f = e^a:  1 / (1 + e^-(a - ln K_i))

Keys do not compete; K keys of logit 0 have weights that sum to K / (K + 1). A learned key counts as one of the K_i.
"""

from typing import ClassVar, Literal

from variants.score_map import Scores
from variants.stages.families import AttentionWeights, FloatScore, Normaliser


class AgainstCount(Normaliser):
    """Weights between 0 and 1, not above f / K."""

    source: ClassVar[str] = "Sigmoid Self-Attention, section 2 (b = -ln n)"
    needs: ClassVar = "logarithm"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The published bias is -ln n of a fixed length n; here n is what each query sees, so prefixes agree.",
    )
    shared: ClassVar[bool] = False

    kind: Literal["against_count"] = "against_count"

    def weights(self, scores: Scores) -> AttentionWeights:
        return AttentionWeights((scores.visible_log() - scores.visible_count.clamp(min=1).log()).sigmoid(), None)

    def oracle(self, f: list[float], score: FloatScore) -> tuple[list[float], float]:  # noqa: ARG002
        return [each / (each + len(f)) for each in f], 0.0
