"""Signals: a head's query and key cut into S slices whose logits are averaged.

    z_ij = (1/S) sum_s  q_i^s . k_j^s / sqrt(d/S)  =  q_i . k_j / sqrt(S d)

The second form is exact: averaging the logits of S slices *is* one product of the whole head at scale 1/sqrt(S d).
Without rotary positions, or with rotary applied to the whole head before the cut, S signals are softmax at temperature
sqrt(S); `rotary="per_signal"` (each slice rotated by its own frequencies) is the only structural difference.
Source: Integral Transformer, section 3.
"""

import math
from typing import ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator
from torch import Tensor

from grid.spec import Spec


class Signals(Spec):
    """How many signals a head averages; 1 is the ordinary scaled product."""

    source: ClassVar[str] = "Integral Transformer, section 3"

    count: PositiveInt = 1
    rotary: Literal["per_signal", "before_split"] = "per_signal"

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.count == 1:
            object.__setattr__(self, "rotary", "per_signal")  # one signal is the whole head either way
        return self

    @property
    def label(self) -> str:
        """`S=4`; empty for one signal."""
        return f"S={self.count}" if self.count > 1 else ""

    def scale(self, channels: int) -> float:
        """What q . k over `channels` semantic channels is multiplied by."""
        return 1 / math.sqrt(self.count * channels)

    def logits(self, q: Tensor, k: Tensor) -> Tensor:
        """z [B, H, T, T] from semantic channels [B, H, T, D]."""
        return (q * self.scale(q.shape[-1])) @ k.transpose(-2, -1)

    def oracle(self, q: list[float], k: list[float]) -> float:
        """The mean over slices, as printed in the paper."""
        width = len(q) // self.count
        signals = [
            sum(a * b for a, b in zip(q[s : s + width], k[s : s + width], strict=True)) / math.sqrt(width)
            for s in range(0, len(q), width)
        ]
        return sum(signals) / self.count
