"""A temperature: z / tau, the scale 1 / sqrt(d) kept.

It is a reparametrisation: the function is softmax with W_Q / tau. Only the start of training and its step sizes differ.
tau = 1 is no temperature.
"""

from typing import ClassVar, Literal

from torch import Tensor

from variants.number import Number, PositiveNumber
from variants.stages.families import Transform


class Temperature(Transform):
    """z / tau."""

    source: ClassVar[str] = "Scaled Signed Averaging, table 1 (softmax with temperature)"
    pitfalls: ClassVar[tuple[str, ...]] = ("It reaches no function that softmax does not reach with another W_Q.",)

    kind: Literal["temperature"] = "temperature"
    tau: PositiveNumber = Number(init=1.0, link="positive")
    """The temperature tau; above 1 flattens the weights."""

    def transform(self, z: Tensor, *, tau: Tensor) -> Tensor:
        return z / tau

    def oracle(self, z: float, *, tau: float) -> float:
        return z / tau
