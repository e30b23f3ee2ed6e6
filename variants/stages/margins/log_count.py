"""Margin amplification: the margin of a logit over the relevance threshold grows with the number of visible keys.

    a = gamma + c (z - gamma),   c_i = 1 + softplus(alpha) ln K_i

computed as  c z + (1 - c) gamma,  which loses no bits of z when c = 1 and gamma is far away. With one visible key
c = 1. K is counted before gating.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from variants.number import Number
from variants.stages.families import Margin


class LogCount(Margin):
    """Amplified by the logarithm of the visible keys; alpha -> -inf is no amplification."""

    source: ClassVar[str] = "Principled Attention, section 3.1 (m_ij)"

    kind: Literal["log_count"] = "log_count"
    amplification: Number = Number(init=-5.0)
    """Margin amplification alpha; at -5, c is 1.05 at 1024 visible keys."""

    def factor(self, count: Tensor, *, amplification: Tensor) -> Tensor:
        return 1 + F.softplus(amplification) * count.clamp(min=1).log()

    def oracle(self, count: int, *, amplification: float) -> float:
        return 1 + math.log1p(math.exp(amplification)) * math.log(max(count, 1))
