"""YaRN: rotary positions stretched to `factor` times the length a model was trained at, without any training.

    w_i  = base^(-2i/R)                                  i from 0 to R/2 - 1, R the channels that turn
    w'_i = w_i (1 - g_i) + w_i / s  g_i                  g_i = (i - low) / (high - low), between 0 and 1
    low  = R ln(L / (2 pi beta_fast)) / (2 ln base)      rounded down, at least 0
    high = R ln(L / (2 pi beta_slow)) / (2 ln base)      rounded up
    cos and sin times 0.1 ln s + 1                       s the factor, L the original length

Fast frequencies, which turn `beta_fast` times or more within L, stay; slow ones, with `beta_slow` turns or fewer, are
interpolated; between them the ramp rises with i. Queries and keys are scaled alike, so a logit is multiplied by the
square before any operator sees it: 1.2965 for s = 4. Channels that do not turn (`share`) are not scaled.

The ramp is that of the released code, and of every library since. In the paper (section 3.2) it rises with the number
of turns and not with i. The code also keeps `high` below R, which takes an L of 2 pi base^2 to matter. gpt-oss leaves
the bounds unrounded (`rounded=False`).
"""

import math
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from variants.stages.positions.turning import Turning


class Yarn(Turning):
    """The frequencies of a `Rotary` of the same base and share, stretched; at factor 1 it is that one."""

    source: ClassVar[str] = "YaRN: Efficient Context Window Extension, sections 3.2 and 3.4, and its code"

    kind: Literal["yarn"] = "yarn"
    base: Annotated[float, Field(gt=1)] = 10_000.0
    factor: Annotated[float, Field(ge=1)]
    """How many times longer sequences become."""
    original: PositiveInt
    """The length, in tokens, that the frequencies were trained at."""
    beta_fast: PositiveFloat = 32.0
    """Turns within the original length from which on a frequency stays as it is."""
    beta_slow: PositiveFloat = 1.0
    """Turns within the original length up to which a frequency is interpolated in full."""
    rounded: bool = True
    """Whether the bounds of the ramp are whole numbers."""

    @model_validator(mode="after")
    def _ramp_rises(self) -> Self:
        if self.beta_slow >= self.beta_fast:
            raise ValueError(
                f"slow frequencies turn less often than fast ones; got beta_slow={self.beta_slow:g} and "
                f"beta_fast={self.beta_fast:g}; lower beta_slow"
            )
        if self.original <= 2 * math.pi * self.beta_slow:
            raise ValueError(
                f"the fastest frequency turns more than beta_slow={self.beta_slow:g} times within the original length, "
                f"one radian per token; got original={self.original}, nearest is "
                f"{math.floor(2 * math.pi * self.beta_slow) + 1}"
            )
        return self

    def bounds(self, turning: int) -> tuple[float, float]:
        """Below the first number frequencies stay, from the second on they are interpolated in full."""
        low, high = (
            turning * math.log(self.original / (2 * math.pi * beta)) / (2 * math.log(self.base))
            for beta in (self.beta_fast, self.beta_slow)
        )
        if self.rounded:
            low, high = math.floor(low), math.ceil(high)
        return max(low, 0), high

    def frequencies(self, turning: int) -> Tensor:
        i = torch.arange(turning // 2, dtype=torch.float64)
        low, high = self.bounds(turning)
        ramp = ((i - low) / (high - low)).clamp(0, 1)
        return self.base ** (-2 * i / turning) * (1 - ramp * (1 - 1 / self.factor))

    @property
    def scale(self) -> float:
        return 0.1 * math.log(self.factor) + 1
