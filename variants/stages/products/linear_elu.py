"""Linear attention with ELU features:  z_ij = phi(q_i) . phi(k_j) / sqrt(d),  phi(x) = elu(x) + 1.

phi is above 0 in every channel, so z is not negative. With score "identity" it needs no row of logits: sums of phi(k) v
and phi(k) over the keys so far give the output. Under the sum as normaliser the scale 1 / sqrt(d) cancels.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from variants.stages.families import FeatureProduct


class LinearELU(FeatureProduct):
    """Features elu(x) + 1."""

    source: ClassVar[str] = "Transformers are RNNs, eq. 7; When Attention Sink Emerges, table 4 (scaled there)"
    nonnegative: ClassVar[bool] = True

    kind: Literal["linear_elu"] = "linear_elu"

    def features(self, x: Tensor) -> Tensor:
        return F.elu(x) + 1

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:  # noqa: ARG002
        def phi(x: float) -> float:
            return x + 1 if x > 0 else math.exp(x)

        return sum(phi(a) * phi(b) for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))
