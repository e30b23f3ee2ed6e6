"""Sinusoidal positions: fixed waves added to the embeddings.

p_t,2i = sin(t base^(-2i/D)),    p_t,2i+1 = cos(t base^(-2i/D))        t from 0, D the model's width
"""

from functools import lru_cache
from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from variants.stages.positions.scheme import Positions


class Sinusoidal(Positions):
    """Added as they are; the embeddings are not scaled up."""

    source: ClassVar[str] = "Attention Is All You Need, section 3.5"

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0

    def embedding(self, length: int, width: int, device: torch.device) -> Tensor:
        return _waves(self.base, length, width, device)


@lru_cache(maxsize=16)
def _waves(base: float, length: int, width: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # noqa: FBT003  (cached: the first caller may be an evaluation, the next one trains)
        frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :width].float().to(device)
