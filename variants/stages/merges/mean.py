"""The mean of the signals' maps, taken after the normaliser.

    w_ij = (1/S) sum_s w_ij^s          the ground state's weight alike

Signals that are all equal give the map of one. The mean has the row sum of the maps if all maps have the same.
"""

from typing import ClassVar, Literal

from variants.stages.families import AttentionWeights, Merge


class MeanWeights(Merge):
    """Maps are averaged; each signal is normalised on its own."""

    source: ClassVar[str] = "Integral Transformer, appendix B, table 8 (softmax output)"

    kind: Literal["mean"] = "mean"

    def merge(self, weights: AttentionWeights) -> AttentionWeights:
        return AttentionWeights(weights.keys.mean(0), None if weights.ground is None else weights.ground.mean(0))

    def oracle(self, maps: list[list[float]], grounds: list[float]) -> tuple[list[float], float]:
        return [sum(each) / len(maps) for each in zip(*maps, strict=True)], sum(grounds) / len(grounds)
