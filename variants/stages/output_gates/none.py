"""The output of a head is not gated."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import OutputGate


class NoOutputGate(OutputGate):
    """Nothing is done."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def gate(self, output: Tensor) -> Tensor:
        return output

    def oracle(self, output: list[float]) -> list[float]:
        return output
