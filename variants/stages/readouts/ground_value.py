"""A value for attending to nothing:  o_i = w_i0 v0 + sum_j w_ij v_j.

Two accumulators, not the shifted form v0 + sum w (v - v0), which loses accuracy in low precision when v0 is large.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.number import Vector
from variants.stages.families import AttentionWeights, Readout, Rows


class GroundValue(Readout):
    """The ground state's weight is given to the ground value v0."""

    source: ClassVar[str] = "Principled Attention, section 3.1 (o_i)"
    needs_ground: ClassVar[bool] = True

    kind: Literal["ground_value"] = "ground_value"
    ground_value: Vector = Vector(init=0.0)
    """Ground value v0 [D]: fixed, per layer (shared by its heads) or per head."""

    def output(self, weights: AttentionWeights, v: Tensor, *, ground_value: Tensor) -> Tensor:
        if weights.ground is None:
            raise ValueError("a ground value needs a normaliser with a ground state")
        return weights.keys @ v + weights.ground * ground_value

    def oracle(self, weights: list[float], ground: float, v: Rows, *, ground_value: list[float]) -> list[float]:
        return [
            ground * value + sum(w * row[d] for w, row in zip(weights, v, strict=True))
            for d, value in enumerate(ground_value)
        ]
