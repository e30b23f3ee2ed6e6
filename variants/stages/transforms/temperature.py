"""A temperature: z / tau, the scale 1 / sqrt(d) kept.

It is a reparametrisation: the function is softmax with W_Q / tau. Only the start of training and its step sizes differ.
tau = 1 is no temperature.
"""

from typing import ClassVar, Literal, Self

from pydantic import model_validator
from torch import Tensor

from variants.number import Number
from variants.stages.families import Transform


class Temperature(Transform):
    """z / tau."""

    source: ClassVar[str] = "Scaled Signed Averaging, table 1 (softmax with temperature)"
    traps: ClassVar[tuple[str, ...]] = ("It reaches no function that softmax does not reach with another W_Q.",)

    kind: Literal["temperature"] = "temperature"
    tau: Number = Number(init=1.0, link="positive")
    """The temperature tau; above 1 flattens the weights."""

    @model_validator(mode="after")
    def _is_positive(self) -> Self:
        if self.tau.link not in ("positive", "at_least_one"):
            raise ValueError(f"tau is above 0 and needs link='positive'; got {self.tau.link!r}")
        return self

    def transform(self, z: Tensor, *, tau: Tensor) -> Tensor:
        return z / tau

    def oracle(self, z: float, *, tau: float) -> float:
        return z / tau
