"""Rotary positions: channel pairs (i, i + D/2) of queries and keys turn by position * base^(-2i/D).

With S signals each slice of D/S channels turns by its own frequencies.
"""

from functools import lru_cache
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from variants.positions.scheme import Positions


class Rotary(Positions):
    """Source: RoFormer; half-split pairing as in Llama."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10_000.0

    @property
    def table(self) -> int:
        return 0

    @property
    def rotates(self) -> bool:
        return True

    def check_width(self, width: int) -> None:
        if width % 2:
            raise ValueError(f"rotary positions need an even number of channels per signal; got {width}")

    def rotate(self, x: Tensor, *, signals: int) -> Tensor:
        *front, length, channels = x.shape
        width = channels // signals
        cos, sin = _angles(self.base, length, width, x.device)
        slices = x.float().reshape(*front, length, signals, width).transpose(-2, -3)
        first, second = slices.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned.transpose(-2, -3).reshape(x.shape).to(x.dtype)


@lru_cache(maxsize=16)
def _angles(base: float, length: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(mode=False):  # cached: the first caller may be an evaluation, the next one trains
        frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        return angle.cos().float().to(device), angle.sin().float().to(device)
