"""No gate: nothing is subtracted."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Gate


class NoGate(Gate):
    """Nothing is subtracted."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    @property
    def channels(self) -> int:
        return 0

    def suppression(self, q: Tensor, k: Tensor) -> Tensor:
        raise NotImplementedError("there are no gate channels to multiply; attend() skips the gate")

    def oracle(self, q: list[float], k: list[float]) -> float:  # noqa: ARG002
        return 0.0
