"""The output of a head as it is."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import HeadNorm


class NoHeadNorm(HeadNorm):
    """Nothing is done."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def normalise(self, output: Tensor) -> Tensor:
        return output

    def oracle(self, output: list[float]) -> list[float]:
        return output
