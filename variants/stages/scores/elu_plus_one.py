"""ELU plus one: the exponential below zero, a line above.

    f(a) = e^a  for a <= 0,  1 + a  for a > 0

Under the sum it is softmax where no visible logit is above 0.
"""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from variants.stages.families import LogScore


class EluPlusOne(LogScore):
    """Grows like the logit; slope 1 at 0."""

    source: ClassVar[str] = "When Attention Sink Emerges, table 4"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "It is taken of the logit; ELU plus one of queries and of keys is the product 'linear_elu'.",
    )

    kind: Literal["elu_plus_one"] = "elu_plus_one"

    def log_score(self, a: Tensor) -> Tensor:
        return torch.where(a > 0, torch.log1p(a.clamp(min=0)), a)

    def oracle(self, a: float) -> float:
        return math.exp(a) if a <= 0 else 1 + a
