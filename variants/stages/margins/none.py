"""No margin: the logit as it is, c = 1."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Margin


class NoMargin(Margin):
    """The logit as it is: c = 1."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def factor(self, count: Tensor) -> None:  # noqa: ARG002  (the family's signature)
        return None

    def oracle(self, count: int) -> float:  # noqa: ARG002
        return 1.0
