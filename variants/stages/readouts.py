"""From weights and values to the output of a head."""

from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import HeadOutput, HeadValues
from ablate.variants.number import Vector
from ablate.variants.stages.families import AttentionWeights, Readout, Rows


class GroundValue(Readout):
    """A value for attending to nothing:  o_i = w_i0 v0 + sum_j w_ij v_j.

    Two accumulators, not the shifted form v0 + sum w (v - v0), which loses accuracy in low precision when v0 is large.
    """

    source: ClassVar[str] = "Principled Attention, section 3.1 (o_i)"
    needs_ground: ClassVar[bool] = True

    kind: Literal["ground_value"] = "ground_value"
    ground_value: Vector = Vector(init=0.0)
    """Ground value v0 [D]: fixed, per layer (shared by its heads) or per head."""

    def output(
        self, weights: AttentionWeights, v: HeadValues, *, ground_value: Float[Tensor, "#batch #heads #queries values"]
    ) -> HeadOutput:
        if weights.ground is None:
            raise ValueError("a ground value needs a normaliser with a ground state")
        return weights.keys @ v + weights.ground * ground_value

    def oracle(self, weights: list[float], ground: float, v: Rows, *, ground_value: list[float]) -> list[float]:
        return [
            ground * value + sum(w * row[d] for w, row in zip(weights, v, strict=True))
            for d, value in enumerate(ground_value)
        ]


class ValueBias(Readout):
    """A value that every query gets besides:  o_i = v* + sum_j w_ij v_j.  A ground state, if any, contributes nothing.

    Weights do not depend on it. Where they sum to one it is the same as v* added to every value.

    v* = 0 is the plain weighted sum; a query that sees nothing gets v*.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, table 3 (V biases)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "It is a bias of the output projection, and adds nothing to a model that has one.",
    )

    kind: Literal["value_bias"] = "value_bias"
    value_bias: Vector = Vector(init=0.0, per="head")
    """v* [D]: per head as in the paper, or per layer, shared by its heads."""

    def output(
        self, weights: AttentionWeights, v: HeadValues, *, value_bias: Float[Tensor, "#batch #heads #queries values"]
    ) -> HeadOutput:
        return weights.keys @ v + value_bias

    def oracle(self, weights: list[float], ground: float, v: Rows, *, value_bias: list[float]) -> list[float]:
        return [bias + sum(w * row[d] for w, row in zip(weights, v, strict=True)) for d, bias in enumerate(value_bias)]


class Values(Readout):
    """The weighted sum of values:  o_i = sum_j w_ij v_j.  A ground state, if any, contributes nothing."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["values"] = "values"

    def output(self, weights: AttentionWeights, v: HeadValues) -> HeadOutput:
        return weights.keys @ v

    def oracle(self, weights: list[float], ground: float, v: list[list[float]]) -> list[float]:
        return [sum(w * row[d] for w, row in zip(weights, v, strict=True)) for d in range(len(v[0]))]
