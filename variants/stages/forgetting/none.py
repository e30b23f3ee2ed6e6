"""Nothing is forgotten."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Forgetting


class NoForgetting(Forgetting):
    """Tokens between key and query change nothing."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def lowering(self, z: Tensor, mask: Tensor) -> None:  # noqa: ARG002
        return None

    def oracle(self, first: list[list[float]], seen: list[list[bool]], i: int, j: int) -> float:  # noqa: ARG002
        return 0.0
