"""Scalable softmax: logits grow with the logarithm of the number of visible keys.

    a = c z,   c_i = s ln K_i          weights  K^(s z) / sum K^(s z)

so that the weight of one relevant key does not fade as keys are added. With one visible key c = 0, and its logit is 0.
Under a normaliser with a threshold, the margin over the threshold is what grows. A fixed s = 1 / ln 512 is log-n
scaling for models trained at 512 keys.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor

from variants.number import Number
from variants.stages.families import Margin


class SSMax(Margin):
    """c = s ln K."""

    source: ClassVar[str] = "Scalable-Softmax Is Superior for Attention, eq. 11 (no bias)"
    traps: ClassVar[tuple[str, ...]] = (
        "One public implementation subtracts s ln K from all logits of a row, which changes nothing; it is a factor.",
        "With one visible key the factor is 0: a sink or a learned key then sees a logit of 0 whatever the query.",
    )

    kind: Literal["ssmax"] = "ssmax"
    scale: Number = Number(init=0.168, per=("layer", "head"))
    """The scale s; at 0.168 the mean of s ln K over 1..1024 keys is 1."""

    def factor(self, count: Tensor, *, scale: Tensor) -> Tensor:
        return scale * count.clamp(min=1).log()

    def oracle(self, count: int, *, scale: float) -> float:
        return scale * math.log(max(count, 1))
