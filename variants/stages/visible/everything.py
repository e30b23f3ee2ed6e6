"""Every key that the model lets it see."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Visible


class Everything(Visible):
    """The model's own mask: causal, or all keys of an encoder."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["everything"] = "everything"

    def restrict(self, mask: Tensor, distance: Tensor) -> Tensor:  # noqa: ARG002
        return mask

    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        return seen[i][j]
