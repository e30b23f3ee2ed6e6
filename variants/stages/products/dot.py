"""The scaled dot product:  z_ij = q_i . k_j / sqrt(d).

The mean over S signals, slices of d/S channels each, is

    (1/S) sum_s  q_i^s . k_j^s / sqrt(d/S)  =  q_i . k_j / sqrt(S d)

exactly: averaging the logits of S slices *is* one product of the whole head at another scale.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import Product


class Dot(Product):
    """q . k / sqrt(d)."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["dot"] = "dot"

    def scale(self, channels: int, signals: int = 1) -> float:
        """Return the factor that turns q . k over all `channels` into the mean logit of `signals` slices."""
        return 1 / math.sqrt(channels * signals)

    def logits(self, q: Tensor, k: Tensor, distance: Tensor) -> Tensor:  # noqa: ARG002  (the family's signature)
        return (q * self.scale(q.shape[-1])) @ k.transpose(-2, -1)

    def mean_logits(self, q: Tensor, k: Tensor, distance: Tensor, signals: int) -> Tensor:  # type: ignore[override]  # noqa: ARG002
        return (q * self.scale(q.shape[-1], signals)) @ k.transpose(-2, -1)

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:  # noqa: ARG002
        return sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))
