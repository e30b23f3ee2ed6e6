"""Rotary positions: channel pairs of queries and keys turn by position * base^(-2i/R), R the channels that turn."""

from functools import lru_cache
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

    def waves(self, length: int, turning: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        return _waves(self.base, length, turning, dtype, device)


@lru_cache(maxsize=16)
def _waves(base: float, length: int, turning: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # noqa: FBT003  (cached: the first caller may be an evaluation, the next one trains)
        frequency = base ** (-torch.arange(0, turning, 2, dtype=torch.float64) / turning)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        return angle.cos().to(device, dtype), angle.sin().to(device, dtype)
