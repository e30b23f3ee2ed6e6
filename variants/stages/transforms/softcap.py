"""Soft capping: c tanh(z / c), so that no logit leaves [-c, c].

Its slope at 0 is 1; c -> inf is no cap, with an error of z^3 / 3 c^2. Positions that add to the logit come after it.
"""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from variants.number import Number, PositiveNumber
from variants.stages.families import Transform


class Softcap(Transform):
    """c tanh(z / c)."""

    source: ClassVar[str] = "Gemma 2, section 2 (logit soft-capping)"

    kind: Literal["softcap"] = "softcap"
    cap: PositiveNumber = Number(init=50.0, link="positive")
    """The cap c, in units of the logit; 50 in Gemma 2's attention."""

    def transform(self, z: Tensor, *, cap: Tensor) -> Tensor:
        return cap * torch.tanh(z / cap)

    def oracle(self, z: float, *, cap: float) -> float:
        return cap * math.tanh(z / cap)
