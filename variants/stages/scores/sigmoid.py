"""The sigmoid: a key counts between 0 and 1, whatever the others are.

    f(a) = 1 / (1 + e^-(a + b))          b shift

With b = -ln n the scores of n keys of logit 0 sum to about 1 and not to n / 2. Where n is the number of keys that each
query sees, use the exponential with the normaliser "against_count". As b -> -inf it is e^(a + b): under the sum,
softmax.
"""

import math
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from variants.number import Number
from variants.stages.families import LogScore


class Sigmoid(LogScore):
    """Between 0 and 1."""

    source: ClassVar[str] = "When Attention Sink Emerges, table 4; Sigmoid Self-Attention, section 2 (b)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Without a normaliser and with b = 0 the weights of a fresh model sum to K / 2: outputs grow with the length.",
    )

    kind: Literal["sigmoid"] = "sigmoid"
    shift: Number = Number(init=0.0)
    """b: 0 as in the paper on sinks; any granularity."""

    def log_score(self, a: Tensor, *, shift: Tensor) -> Tensor:
        return F.logsigmoid(a + shift)

    def oracle(self, a: float, *, shift: float) -> float:
        x = a + shift
        return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
