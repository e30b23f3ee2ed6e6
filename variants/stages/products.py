"""How a query and a key become a logit."""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants.axes import Distances, Keys, Map, Queries
from ablate.variants.number import Matrix
from ablate.variants.stages.families import FeatureProduct, Product, Rows


class CosFormer(Product):
    """cosFormer: ReLU features, weighted less with distance.

        z_ij = relu(q_i) . relu(k_j) cos(pi (i - j) / 2 M)

    There is no 1 / sqrt(d), because it would cancel under normaliser "total". The cosine is not negative if |i - j| <=
    M, so a sequence longer than M + 1 is refused. A learned key is at distance 0. By cos(a - b) = cos a cos b + sin a
    sin b the logit is a sum over twice the features, hence linear in the length. M -> inf is sqrt(d) times the product
    "relu".
    """

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
                f"a sequence of {keys} does not fit cosformer with length={m}, which compares tokens up to {m} apart; "
                f"raise length to {keys - 1} or more"
            )
        return m

    def logits(self, q: Queries, k: Keys, distance: Distances) -> Map:
        m = self.reach(distance.shape[-1])
        near = (distance.to(q.dtype) * (math.pi / (2 * m))).cos().clamp(min=0)  # at M itself rounding may go below 0
        return (q.relu() @ k.relu().transpose(-2, -1)) * near

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:
        near = math.cos(math.pi / 2 * distance / (self.length or length))
        return sum(max(a, 0.0) * max(b, 0.0) for a, b in zip(q, k, strict=True)) * near


class Dot(Product):
    """The scaled dot product:  z_ij = q_i . k_j / sqrt(d).

    The mean over S signals, slices of d/S channels each, is

        (1/S) sum_s  q_i^s . k_j^s / sqrt(d/S)  =  q_i . k_j / sqrt(S d)

    exactly: averaging the logits of S slices *is* one product of the whole head at another scale.
    """

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["dot"] = "dot"

    def scale(self, channels: int, signals: int = 1) -> float:
        """Return the factor that turns q . k over all `channels` into the mean logit of `signals` slices."""
        return 1 / math.sqrt(channels * signals)

    def logits(self, q: Queries, k: Keys, distance: Distances) -> Map:
        return (q * self.scale(q.shape[-1])) @ k.transpose(-2, -1)

    def mean_logits(  # type: ignore[override]
        self, q: Queries, k: Keys, distance: Distances, signals: int
    ) -> Map:
        return (q * self.scale(q.shape[-1], signals)) @ k.transpose(-2, -1)

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:
        return sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))


class LinearELU(FeatureProduct):
    """Linear attention with ELU features:  z_ij = phi(q_i) . phi(k_j) / sqrt(d),  phi(x) = elu(x) + 1.

    phi is above 0 in every channel, so z is not negative. With score "identity" it needs no row of logits: sums of
    phi(k) v and phi(k) over the keys so far give the output. Under the sum as normaliser the scale 1 / sqrt(d) cancels.
    """

    source: ClassVar[str] = "Transformers are RNNs, eq. 7; When Attention Sink Emerges, table 4 (scaled there)"
    nonnegative: ClassVar[bool] = True

    kind: Literal["linear_elu"] = "linear_elu"

    def features(self, x: Float[Tensor, "*queries"]) -> Float[Tensor, "*queries"]:
        return F.elu(x) + 1

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:
        def phi(x: float) -> float:
            return x + 1 if x > 0 else math.exp(x)

        return sum(phi(a) * phi(b) for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))


class MLP(FeatureProduct):
    """A learned kernel:  z_ij = phi(q_i) . phi(k_j) / sqrt(d),  phi(x) = W2 relu(W1 x),  without biases.

    One phi serves queries and keys and, by default, all heads of a layer; it comes after positions. z can be negative.
    """

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

    def features(
        self,
        x: Float[Tensor, "*maps tokens channels"],
        *,
        inner: Float[Tensor, "1 #heads channels channels"],
        outer: Float[Tensor, "1 #heads channels channels"],
    ) -> Float[Tensor, "*maps tokens channels"]:
        hidden = (x @ inner.to(x).transpose(-2, -1)).relu()
        return hidden @ outer.to(x).transpose(-2, -1)

    def oracle(self, q: list[float], k: list[float], distance: int, length: int, *, inner: Rows, outer: Rows) -> float:
        def phi(x: list[float]) -> list[float]:
            hidden = [max(0.0, sum(w * each for w, each in zip(row, x, strict=True))) for row in inner]
            return [sum(w * each for w, each in zip(row, hidden, strict=True)) for row in outer]

        return sum(a * b for a, b in zip(phi(q), phi(k), strict=True)) / math.sqrt(len(q))


class ReluFeatures(FeatureProduct):
    """Linear attention with ReLU features:  z_ij = relu(q_i) . relu(k_j) / sqrt(d).

    It is the limit M -> inf of cosFormer. z is not negative, and 0 if query and key share no positive channel.
    """

    source: ClassVar[str] = "cosFormer, section 3.2 (without re-weighting)"
    nonnegative: ClassVar[bool] = True

    kind: Literal["relu"] = "relu"

    def features(self, x: Float[Tensor, "*queries"]) -> Float[Tensor, "*queries"]:
        return x.relu()

    def oracle(self, q: list[float], k: list[float], distance: int, length: int) -> float:
        return sum(max(a, 0.0) * max(b, 0.0) for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))
