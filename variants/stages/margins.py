"""How the margin over the relevance threshold grows."""

import math
from typing import Annotated, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.spec import Added
from ablate.variants.axes import Scalar
from ablate.variants.number import Number
from ablate.variants.stages.families import Margin


class LogCount(Margin):
    """Margin amplification: the margin of a logit over the relevance threshold grows with the number of visible keys.

        a = gamma + c (z - gamma),   c_i = 1 + softplus(alpha) ln K_i

    computed as  c z + (1 - c) gamma,  which loses no bits of z when c = 1 and gamma is far away. With one visible key
    c = 1. K is counted before gating.

    Amplified by the logarithm of the visible keys; alpha -> -inf is no amplification.
    """

    source: ClassVar[str] = "Principled Attention, section 3.1 (m_ij)"

    kind: Literal["log_count"] = "log_count"
    amplification: Number = Number(init=-5.0)
    """Margin amplification alpha; at -5, c is 1.05 at 1024 visible keys."""

    def factor(
        self, count: Float[Tensor, "*#maps queries 1"], *, amplification: Scalar
    ) -> Float[Tensor, "*#maps queries 1"]:
        return 1 + F.softplus(amplification) * count.clamp(min=1).log()

    def oracle(self, count: int, *, amplification: float) -> float:
        return 1 + math.log1p(math.exp(amplification)) * math.log(max(count, 1))


class SSMax(Margin):
    """Scalable softmax: logits grow with the logarithm of the number of visible keys.

        a = c z,   c_i = s ln K_i + b      weights  K^(s z) / sum K^(s z)   if b = 0

    so that the weight of one relevant key does not fade as keys are added. With one visible key c = b, and without a
    bias its logit is 0. Under a normaliser with a threshold, the margin over the threshold is what grows. A fixed s = 1
    / ln 512 is log-n scaling for models trained at 512 keys.
    """

    source: ClassVar[str] = "Scalable-Softmax Is Superior for Attention, eq. 11, and its variant with a bias"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "One public implementation subtracts s ln K from all logits of a row, which changes nothing; it is a factor.",
        "With one visible key the factor is b. If b = 0, a sink or a learned key sees a logit of 0 whatever the query.",
    )

    kind: Literal["ssmax"] = "ssmax"
    scale: Number = Number(init=0.168, per=("layer", "head"))
    """The scale s; at 0.168 the mean of s ln K over 1..1024 keys is 1."""
    bias: Annotated[Number, Added()] = Number(init=0.0)
    """The bias b; fixed at 0 it is left out."""

    def factor(
        self, count: Float[Tensor, "*#maps queries 1"], *, scale: Scalar, bias: Scalar
    ) -> Float[Tensor, "*#maps queries 1"]:
        return scale * count.clamp(min=1).log() + bias

    def oracle(self, count: int, *, scale: float, bias: float) -> float:
        return scale * math.log(max(count, 1)) + bias
