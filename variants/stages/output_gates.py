"""Factors of a head's output."""

from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import HeadOutput, Scalar
from ablate.variants.number import Number, Vector
from ablate.variants.stages.families import OutputGate


class PerChannel(OutputGate):
    """A head's output times one number per channel:  o_i' = g_i * o_i,  g_i = sigmoid(W x_i + b) of as many channels.

    Element-wise gate, predicted from the layer's input; g = 1 is no gate.
    """

    source: ClassVar[str] = "Gated Attention (Qiu et al. 2025), element-wise; Affine-Scaled Attention, eq. 4"

    kind: Literal["per_channel"] = "per_channel"
    opening: Vector = Vector(init=0.5, per="token", link="unit")
    """g: how far the gate is open, one number per channel, head and token."""

    def gate(self, output: HeadOutput, *, opening: Float[Tensor, "#batch #heads #queries values"]) -> HeadOutput:
        return opening * output

    def oracle(self, output: list[float], *, opening: list[float]) -> list[float]:
        return [g * each for g, each in zip(opening, output, strict=True)]


class PerHead(OutputGate):
    """A head's output times one number for all its channels:  o_i' = g_i o_i,  g_i = sigmoid(w . x_i + b).

    Head-wise gate, predicted from the layer's input; g = 1 is no gate.
    """

    source: ClassVar[str] = "Gated Attention (Qiu et al. 2025), head-wise; Affine-Scaled Attention, eq. 4"

    kind: Literal["per_head"] = "per_head"
    opening: Number = Number(init=0.5, per="token", link="unit")
    """g: how far the gate is open, one number per head and token."""

    def gate(self, output: HeadOutput, *, opening: Scalar) -> HeadOutput:
        return opening * output

    def oracle(self, output: list[float], *, opening: float) -> list[float]:
        return [each * opening for each in output]
