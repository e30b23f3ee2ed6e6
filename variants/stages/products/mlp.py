"""A learned kernel:  z_ij = phi(q_i) . phi(k_j) / sqrt(d),  phi(x) = W2 relu(W1 x),  without biases.

One phi serves queries and keys and, by default, all heads of a layer; it comes after positions. z can be negative.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.number import Matrix
from variants.stages.families import FeatureProduct, Rows


class MLP(FeatureProduct):
    """Features of a two-layer network."""

    source: ClassVar[str] = "When Attention Sink Emerges, table 4 (MLP kernels)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The paper does not say what shares the network nor how it starts: as in the released code, queries, keys and "
        "a layer's heads share it. Its entries start with standard deviation gain / sqrt(d), there sqrt(0.4 / d).",
    )

    kind: Literal["mlp"] = "mlp"
    inner: Matrix = Matrix()
    """W1 [D, D]; its init is the gain."""
    outer: Matrix = Matrix()
    """W2 [D, D]; its init is the gain."""

    def features(self, x: Tensor, *, inner: Tensor, outer: Tensor) -> Tensor:
        hidden = (x @ inner.to(x).transpose(-2, -1)).relu()
        return hidden @ outer.to(x).transpose(-2, -1)

    def oracle(self, q: list[float], k: list[float], distance: int, length: int, *, inner: Rows, outer: Rows) -> float:  # noqa: ARG002
        def phi(x: list[float]) -> list[float]:
            hidden = [max(0.0, sum(w * each for w, each in zip(row, x, strict=True))) for row in inner]
            return [sum(w * each for w, each in zip(row, hidden, strict=True)) for row in outer]

        return sum(a * b for a, b in zip(phi(q), phi(k), strict=True)) / math.sqrt(len(q))
