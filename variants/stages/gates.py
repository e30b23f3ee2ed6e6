"""A second product of query and key that can lower a logit."""

import math
from typing import ClassVar, Literal, Self

from pydantic import PositiveInt
from torch.nn import functional as F

from ablate.variants.axes import Keys, Map, Queries, Scalar
from ablate.variants.number import Number
from ablate.variants.stages.families import Gate


class Suppress(Gate):
    """Gate suppression: a second product of query and key can lower a logit, never raise it.

        b_ij = softplus(beta) softplus(-g_ij),   g_ij = q_i^g . k_j^g / sqrt(d_g)

    The gate channels are the last of the head and are not rotated. With dims="split" they are taken from the head's own
    width (no parameters added, the semantic product loses them); with dims="add" the head gets them in addition. The
    paper's section 3.1 leaves the scale 1 / sqrt(d_g) out; its section 1 has it, and so has this.

    Suppression by a content gate; beta -> -inf is no gate.
    """

    source: ClassVar[str] = "Principled Attention, section 3.1 (g_ij, b_ij)"

    kind: Literal["suppress"] = "suppress"
    strength: Number = Number(init=-5.0)
    """Gating strength beta; at -5 an indifferent key (g = 0) loses 0.005 nats, at 0 it loses ln(2)^2 = 0.48."""
    width: PositiveInt = 16
    """Gate channels d_g of a query and of a key."""
    dims: Literal["add", "split"] = "add"
    """Whether they come on top of the head's channels or out of them."""

    @classmethod
    def example(cls) -> Self:
        return cls(width=4)

    @property
    def channels(self) -> int:
        return self.width

    @property
    def takes_channels(self) -> bool:
        return self.dims == "split"

    def suppression(self, q: Queries, k: Keys, *, strength: Scalar) -> Map:
        g = (q / math.sqrt(self.width)) @ k.transpose(-2, -1)
        return F.softplus(strength) * F.softplus(-g)

    def oracle(self, q: list[float], k: list[float], *, strength: float) -> float:
        g = sum(a * b for a, b in zip(q, k, strict=True)) / len(q) ** 0.5
        return math.log(1 + math.exp(strength)) * math.log(1 + math.exp(-g))
