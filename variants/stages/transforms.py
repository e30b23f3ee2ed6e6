"""Changes of a logit before the position bias."""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import Scalar
from ablate.variants.number import Number, PositiveNumber
from ablate.variants.stages.families import Transform


class Softcap(Transform):
    """Soft capping: c tanh(z / c), so that no logit leaves [-c, c].

    Its slope at 0 is 1; c -> inf is no cap, with an error of z^3 / 3 c^2. Positions that add to the logit come after
    it.
    """

    source: ClassVar[str] = "Gemma 2, section 2 (logit soft-capping)"

    kind: Literal["softcap"] = "softcap"
    cap: PositiveNumber = Number(init=50.0, link="positive")
    """The cap c, in units of the logit; 50 in Gemma 2's attention."""

    def transform(self, z: Float[Tensor, "*map"], *, cap: Scalar) -> Float[Tensor, "*map"]:
        return cap * torch.tanh(z / cap)

    def oracle(self, z: float, *, cap: float) -> float:
        return cap * math.tanh(z / cap)


class Temperature(Transform):
    """A temperature: z / tau, the scale 1 / sqrt(d) kept.

    It is a reparametrisation: the function is softmax with W_Q / tau. Only the start of training and its step sizes
    differ. tau = 1 is no temperature.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, table 1 (softmax with temperature)"
    pitfalls: ClassVar[tuple[str, ...]] = ("It reaches no function that softmax does not reach with another W_Q.",)

    kind: Literal["temperature"] = "temperature"
    tau: PositiveNumber = Number(init=1.0, link="positive")
    """The temperature tau; above 1 flattens the weights."""

    def transform(self, z: Float[Tensor, "*map"], *, tau: Scalar) -> Float[Tensor, "*map"]:
        return z / tau

    def oracle(self, z: float, *, tau: float) -> float:
        return z / tau
