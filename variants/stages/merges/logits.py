"""The mean of the signals' logits, taken before the score, so that there is one map.

z_ij = (1/S) sum_s z_ij^s
"""

from typing import ClassVar, Literal

from variants.stages.families import AttentionWeights, Merge


class MeanLogits(Merge):
    """Logits are averaged; one signal is the ordinary product."""

    source: ClassVar[str] = "Integral Transformer, section 3"
    of_logits: ClassVar[bool] = True

    kind: Literal["logits"] = "logits"

    def merge(self, weights: AttentionWeights) -> AttentionWeights:
        raise NotImplementedError("logits are merged before the score; attend() has one map already")

    def oracle(self, maps: list[list[float]], grounds: list[float]) -> tuple[list[float], float]:
        raise NotImplementedError("logits are merged before the score")
