"""Position schemes that turn channel pairs (i, i + R/2) of queries and keys by an angle for each position.

R is the number of channels that turn: the first `share` of them, all by default (Pythia turns a quarter); the others
are left as they are. With S signals each slice of D/S channels turns by its own frequencies.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from variants.stages.positions.scheme import Positions


class Turning(Positions):
    """Half-split pairing as in Llama, a share of the channels as in GPT-NeoX."""

    rotates: ClassVar[bool] = True

    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def scale(self) -> float:
        """Factor of cosine and sine; logits get its square."""
        return 1.0

    @abstractmethod
    def frequencies(self, turning: int) -> Tensor:
        """Radians per position, float64 [turning / 2]."""

    def check_width(self, width: int) -> None:
        turning = round(self.share * width, 9)
        if turning == 0 or turning % 2:
            part = "" if self.share == 1 else f"{self.share:g} of {width} channels is "
            raise ValueError(
                f"rotary positions turn an even number of channels per signal; {part or 'got '}{turning:g}"
            )

    def rotate(self, x: Tensor, *, signals: int) -> Tensor:
        *front, length, channels = x.shape
        width = channels // signals
        turning = round(self.share * width)
        working = torch.promote_types(x.dtype, torch.float32)
        cos, sin = _waves(self, length, turning, working, x.device)
        slices = x.to(working).reshape(*front, length, signals, width).transpose(-2, -3)
        first, second = slices[..., :turning].chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin, slices[..., turning:]), dim=-1)
        return turned.transpose(-2, -3).reshape(x.shape).to(x.dtype)


@lru_cache(maxsize=32)
def _waves(
    positions: Turning, length: int, turning: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Compute cosine and sine of the angles [length, turning / 2] of positions from 0, times the scale."""
    with torch.inference_mode(False):  # noqa: FBT003  (cached: the first caller may be an evaluation, the next one trains)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * positions.frequencies(turning)
        return (positions.scale * angle.cos()).to(device, dtype), (positions.scale * angle.sin()).to(device, dtype)
