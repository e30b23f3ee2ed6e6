"""The logit as it is."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Transform


class NoTransform(Transform):
    """Nothing is done."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def transform(self, z: Tensor) -> Tensor:
        return z

    def oracle(self, z: float) -> float:
        return z
