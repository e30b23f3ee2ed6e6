"""Scaled signed averaging: a power law in place of the exponential.

    f(a) = (1 + b |a|) ** (n sgn a)         b > 0 slope, n >= 1 exponent
         = exp(n sgn(a) log1p(b |a|))       the form computed here

It concentrates polynomially, so one large logit does not silence all other keys.
"""

import math
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from variants.number import Number, PositiveNumber, require_link
from variants.stages.families import LogScore
from variants.stages.stage import Tends


class SSA(LogScore):
    """Polynomial score: concentrates more slowly than the exponential on large logits."""

    source: ClassVar[str] = "Scaled Signed Averaging, eq. 5"
    identities: ClassVar[tuple[Tends, ...]] = (Tends({"b": 1e-6, "n": 1e6}, to="exponential", within=1e-4),)

    kind: Literal["ssa"] = "ssa"
    n: PositiveNumber = Number(init=1.5, per=("layer", "head"), link="at_least_one")
    """The exponent n, at least 1: how fast a large logit outgrows the others."""
    b: Annotated[Number, require_link("positive")] = Number(init=1.0, per=("layer", "head"), link="positive")
    """The slope b, above 0: how large a logit is before the exponent matters; n b is the slope of ln f at 0."""

    def log_score(self, a: Tensor, *, n: Tensor, b: Tensor) -> Tensor:
        rising = torch.log1p(b * a.clamp(min=0))
        falling = torch.log1p(b * (-a).clamp(min=0))
        return n * torch.where(a >= 0, rising, -falling)  # this form keeps the slope n*b at a = 0

    def oracle(self, a: float, *, n: float, b: float) -> float:
        return math.pow(1 + b * abs(a), n if a >= 0 else -n)
