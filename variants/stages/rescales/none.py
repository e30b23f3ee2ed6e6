"""Weights as the normaliser gives them."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import AttentionWeights, Rescale


class NoRescale(Rescale):
    """Nothing is done."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def rescale(self, weights: AttentionWeights, mask: Tensor) -> AttentionWeights:  # noqa: ARG002
        return weights

    def oracle(self, weights: list[float], ground: float, length: int) -> tuple[list[float], float]:  # noqa: ARG002
        return weights, ground
