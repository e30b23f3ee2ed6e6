"""Linear attention with ReLU features:  z_ij = relu(q_i) . relu(k_j) / sqrt(d).

It is the limit M -> inf of cosFormer. z is not negative, and 0 if query and key share no positive channel.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import FeatureProduct


class ReluFeatures(FeatureProduct):
    """Features max(x, 0)."""

    source: ClassVar[str] = "cosFormer, section 3.2 (without re-weighting)"
    nonnegative: ClassVar[bool] = True

    kind: Literal["relu"] = "relu"

    def features(self, x: Tensor) -> Tensor:
        return x.relu()

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:  # noqa: ARG002
        return sum(max(a, 0.0) * max(b, 0.0) for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))
