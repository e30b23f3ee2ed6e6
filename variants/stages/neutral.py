"""Neutral choices: each leaves its stage out, as in softmax attention."""

from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import Map, Mask
from ablate.variants.stages.families import (
    AttentionWeights,
    Extra,
    Forgetting,
    Gate,
    HeadNorm,
    Margin,
    OutputGate,
    Preparation,
    Rescale,
    Transform,
)

_SOFTMAX = "Attention Is All You Need, eq. 1"


class NoPreparation(Preparation):
    """Queries and keys as they are projected."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def prepare(
        self, q: Float[Tensor, "*query"], k: Float[Tensor, "*key"]
    ) -> tuple[Float[Tensor, "*query"], Float[Tensor, "*key"]]:
        return q, k

    def oracle(self, q: list[float], k: list[float]) -> tuple[list[float], list[float]]:
        return q, k


class NoExtra(Extra):
    """No learned key."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def pair(self) -> None:
        return None

    def oracle(self) -> None:
        return None


class NoTransform(Transform):
    """The logit as it is."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def transform(self, z: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return z

    def oracle(self, z: float) -> float:
        return z


class NoForgetting(Forgetting):
    """Nothing is forgotten."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def lowering(self, z: Map, mask: Mask) -> None:
        return None

    def oracle(self, first: list[list[float]], seen: list[list[bool]], i: int, j: int) -> float:
        return 0.0


class NoMargin(Margin):
    """No margin: the logit as it is, c = 1."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def factor(self, count: Float[Tensor, "*#maps queries 1"]) -> None:
        return None

    def oracle(self, count: int) -> float:
        return 1.0


class NoGate(Gate):
    """No gate: nothing is subtracted."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    @property
    def channels(self) -> int:
        return 0

    def suppression(self, q: Float[Tensor, "*heads queries 0"], k: Float[Tensor, "*heads keys 0"]) -> Map:
        raise NotImplementedError("there are no gate channels to multiply; attend() skips the gate")

    def oracle(self, q: list[float], k: list[float]) -> float:
        return 0.0


class NoRescale(Rescale):
    """Weights as the normaliser gives them."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def rescale(self, weights: AttentionWeights, mask: Mask) -> AttentionWeights:
        return weights

    def oracle(self, weights: list[float], ground: float, length: int) -> tuple[list[float], float]:
        return weights, ground


class NoHeadNorm(HeadNorm):
    """The output of a head as it is."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def normalise(self, output: Float[Tensor, "*output"]) -> Float[Tensor, "*output"]:
        return output

    def oracle(self, output: list[float]) -> list[float]:
        return output


class NoOutputGate(OutputGate):
    """The output of a head is not gated."""

    source: ClassVar[str] = _SOFTMAX
    kind: Literal["none"] = "none"

    def gate(self, output: Float[Tensor, "*output"]) -> Float[Tensor, "*output"]:
        return output

    def oracle(self, output: list[float]) -> list[float]:
        return output
