"""ALiBi: a penalty on the logit that is linear in the distance, without parameters.

    z_ij - s_h |i - j|,    s_h = 2^(-8h/H)        h from 1 to H

For 8 heads the slopes are 1/2 ... 1/256. The formula serves any H; the authors' code interpolates between powers of 2.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from variants.stages.positions.scheme import Positions


class Alibi(Positions):
    """A penalty that is linear in the distance; an encoder uses the absolute distance."""

    source: ClassVar[str] = "Train Short, Test Long, section 3; When Attention Sink Emerges, eq. 8"
    adds_bias: ClassVar[bool] = True

    kind: Literal["alibi"] = "alibi"

    def bias(self, distance: Tensor, heads: int, learned: Tensor | None, *, causal: bool) -> Tensor:  # noqa: ARG002
        h = torch.arange(1, heads + 1, device=distance.device)
        slopes = torch.exp2(-8 * h / heads)
        return -slopes[:, None, None] * distance.abs()
