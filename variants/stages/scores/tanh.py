"""The hyperbolic tangent:  f(a) = tanh(a), between -1 and 1."""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import PlainScore


class Tanh(PlainScore):
    """Odd and bounded."""

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"

    kind: Literal["tanh"] = "tanh"

    def score(self, a: Tensor) -> Tensor:
        return a.tanh()

    def oracle(self, a: float) -> float:
        return math.tanh(a)
