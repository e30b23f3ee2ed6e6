"""cosFormer: ReLU features, weighted less with distance.

    z_ij = relu(q_i) . relu(k_j) cos(pi (i - j) / 2 M)

There is no 1 / sqrt(d), because it would cancel under normaliser "total". The cosine is not negative if |i - j| <= M,
so a sequence longer than M + 1 is refused. A learned key is at distance 0. By cos(a - b) = cos a cos b + sin a sin b
the logit is a sum over twice the features, hence linear in the length. M -> inf is sqrt(d) times the product "relu".
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import PositiveInt
from torch import Tensor

from grid.errors import SpecError
from variants.stages.families import Product


class CosFormer(Product):
    """ReLU features with a cosine of the distance."""

    source: ClassVar[str] = "cosFormer, section 3.2 (cosine re-weighting)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The released code takes M from the sequence at hand, so the operator is another one at every length; a "
        "curriculum over lengths or a cache needs `length`.",
        "A query whose channels are all negative has logits of 0 and gets 0, not an average.",
    )
    nonnegative: ClassVar[bool] = True

    kind: Literal["cosformer"] = "cosformer"
    length: PositiveInt | None = None
    """M, at least the largest distance; None for the number of keys, as in the released code."""

    @property
    def breaks(self) -> Mapping[str, str]:
        if self.length is not None:
            return {}
        return {"prefix": "M is the length of the sequence, so what follows changes what was computed before"}

    @property
    def longest(self) -> int | None:
        return None if self.length is None else self.length + 1

    def reach(self, keys: int) -> int:
        """Return M for a sequence of `keys`; raise SpecError if its tokens are further apart."""
        m = self.length or keys
        if keys - 1 > m:
            raise SpecError(
                f"cosformer with length={m} compares tokens up to {m} apart; got a sequence of {keys}, "
                f"raise length to {keys - 1} or more"
            )
        return m

    def logits(self, q: Tensor, k: Tensor, distance: Tensor) -> Tensor:
        m = self.reach(distance.shape[-1])
        near = (distance.to(q.dtype) * (math.pi / (2 * m))).cos().clamp(min=0)  # at M itself rounding may go below 0
        return (q.relu() @ k.relu().transpose(-2, -1)) * near

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:
        near = math.cos(math.pi / 2 * distance / (self.length or length))
        return sum(max(a, 0.0) * max(b, 0.0) for a, b in zip(q, k, strict=True)) * near
