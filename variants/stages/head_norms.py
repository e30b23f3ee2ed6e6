"""Norms of a head's output vector."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor

from ablate.variants.axes import HeadOutput, Scalar
from ablate.variants.number import ByDepth, Vector
from ablate.variants.stages.families import HeadNorm


class RMS(HeadNorm):
    """Each head's output is brought to one size:  o' = factor gain * o / sqrt(mean(o^2) + eps).

    `factor` is fixed by depth and `gain` [D] is learned. Differential Attention has factor 1 - lambda_init(l), which
    falls from 0.8 to 0.2. An output of 0 stays 0.
    """

    source: ClassVar[str] = "Differential Transformer, eq. 3 (GroupNorm, which is one norm per head)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The size of the values no longer matters, nor by how much weights sum to less than 1: only their direction.",
        "The norm undoes whatever only makes outputs smaller: a sink, or a learned key without a value.",
    )
    ignores_size: ClassVar[bool] = True

    kind: Literal["rms"] = "rms"
    gain: Vector = Vector(init=1.0, per="layer")
    """One entry per channel; shared by the heads of a layer, as in the released code, or per head."""
    factor: ByDepth = ByDepth(init=1.0, deep=1.0)
    """Multiplies every channel: 1, or by depth."""
    eps: PositiveFloat = 1e-5

    def normalise(
        self, output: HeadOutput, *, gain: Float[Tensor, "#batch #heads #queries values"], factor: Scalar
    ) -> HeadOutput:
        size = output.square().mean(-1, keepdim=True) + self.eps
        return output * torch.rsqrt(size) * gain * factor

    def oracle(self, output: list[float], *, gain: list[float], factor: float) -> list[float]:
        size = (sum(each * each for each in output) / len(output) + self.eps) ** 0.5
        return [factor * g * each / size for g, each in zip(gain, output, strict=True)]
