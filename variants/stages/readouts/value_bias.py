"""A value that every query gets besides:  o_i = v* + sum_j w_ij v_j.  A ground state, if any, contributes nothing.

Weights do not depend on it. Where they sum to one it is the same as v* added to every value.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.number import Vector
from variants.stages.families import AttentionWeights, Readout, Rows


class ValueBias(Readout):
    """v* = 0 is the plain weighted sum; a query that sees nothing gets v*."""

    source: ClassVar[str] = "When Attention Sink Emerges, table 3 (V biases)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "It is a bias of the output projection, and adds nothing to a model that has one.",
    )

    kind: Literal["value_bias"] = "value_bias"
    value_bias: Vector = Vector(init=0.0, per="head")
    """v* [D]: per head as in the paper, or per layer, shared by its heads."""

    def output(self, weights: AttentionWeights, v: Tensor, *, value_bias: Tensor) -> Tensor:
        return weights.keys @ v + value_bias

    def oracle(self, weights: list[float], ground: float, v: Rows, *, value_bias: list[float]) -> list[float]:  # noqa: ARG002
        return [bias + sum(w * row[d] for w, row in zip(weights, v, strict=True)) for d, bias in enumerate(value_bias)]
