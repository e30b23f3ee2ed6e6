"""Queries and keys as they are projected."""

from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Preparation


class NoPreparation(Preparation):
    """Nothing is done."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def oracle(self, q: list[float], k: list[float]) -> tuple[list[float], list[float]]:
        return q, k
