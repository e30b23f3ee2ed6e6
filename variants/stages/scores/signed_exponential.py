"""The signed exponential: a very negative logit counts as much as a very positive one, with the other sign.

    f(a) = sgn(a) e^|a|          f(0) = 0, of size e^0 = 1

The sign has no gradient; the score jumps from -1 to 1 at a = 0. Under the normaliser "absolute" this is Cog attention,
sgn(a) softmax(|a|): a logit of 0 has weight 0 and still adds its size to the sum.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.stages.families import LogScore, Range


class SignedExponential(LogScore):
    """Odd: f(-a) = -f(a)."""

    source: ClassVar[str] = "Integral Transformer, eq. 4 (Cog); More Expressive Attention with Negative Weights"
    range: ClassVar[Range] = "any"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A logit of exactly 0 has weight 0 and adds e^0 = 1 to the sum. With all logits 0, as if queries start at "
        "zero, all weights are 0 and no query or key has a gradient.",
        "Twice the keys, once with their sign turned, give sinh(a) / sum cosh(a), which is another operator.",
    )

    kind: Literal["signed_exponential"] = "signed_exponential"

    def log_score(self, a: Tensor) -> Tensor:
        return a.abs()

    def sign(self, a: Tensor) -> Tensor:
        return a.detach().sign()

    def oracle(self, a: float) -> float:
        return math.copysign(math.exp(abs(a)), a) if a else 0.0

    def size_oracle(self, a: float) -> float:  # type: ignore[override]
        return math.exp(abs(a))
