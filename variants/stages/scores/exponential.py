"""The exponential: f(a) = exp(a). With the sum as normaliser this is softmax."""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import LogScore


class Exponential(LogScore):
    """f(a) = exp(a)."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["exponential"] = "exponential"

    def log_score(self, a: Tensor) -> Tensor:
        return a

    def oracle(self, a: float) -> float:
        return math.exp(a)
