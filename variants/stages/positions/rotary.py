"""Rotary positions: channel pairs of queries and keys turn by position * base^(-2i/R), R the channels that turn."""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from variants.stages.positions.turning import Turning


class Rotary(Turning):
    """The angles of RoFormer."""

    source: ClassVar[str] = "RoFormer, section 3.2"

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10_000.0

    def frequencies(self, turning: int) -> Tensor:
        return self.base ** (-torch.arange(0, turning, 2, dtype=torch.float64) / turning)
