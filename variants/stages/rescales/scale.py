"""Weights multiplied by a number:  w_ij' = alpha w_ij,  which is the normaliser Z_i / alpha.

The ground state's weight is multiplied too, so it keeps its share of the row.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.number import Number
from variants.stages.families import AttentionWeights, Rescale


class Scale(Rescale):
    """The sum of a row is alpha times what it was; alpha = 1 is nothing."""

    source: ClassVar[str] = "When Attention Sink Emerges, appendix D.6 (table 12)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The operator is the unscaled one with an output projection that starts alpha times as large.",
        "Its learning rate then counts alpha^2-fold under SGD and alpha-fold under Adam.",
    )
    only_scales: ClassVar[bool] = True

    kind: Literal["scale"] = "scale"
    factor: Number = Number(init=1.0)
    """alpha; the paper tries 2, 1, 0.2, 0.1 and 0.02."""

    def rescale(self, weights: AttentionWeights, mask: Tensor, *, factor: Tensor) -> AttentionWeights:  # noqa: ARG002
        return AttentionWeights(factor * weights.keys, None if weights.ground is None else factor * weights.ground)

    def oracle(self, weights: list[float], ground: float, length: int, *, factor: float) -> tuple[list[float], float]:  # noqa: ARG002
        return [each * factor for each in weights], ground * factor
