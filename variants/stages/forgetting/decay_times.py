"""A forget gate whose heads start with different decay times, from short to long.

    z_ij + sum_{l = j+1 .. i} ln f_l          f = e^(-1 / t) at the start

The decay time t, in tokens, is evenly spaced in logarithm: t_h = t_1 (t_H / t_1)^((h - 1) / (H - 1)) for head h of H.
Everything else is as in `forget_gate`.
"""

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from variants.granularity import Axis, Granularity
from variants.links import LINKS, Link
from variants.number import HeadShape, Number, require_link
from variants.stages.gated_forgetting import GatedForgetting


class HeadDecay(Number):
    """A share f by head: `init` in the first head, `last` in the last one, log-spaced decay times between them."""

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = (("layer", "head"), ("layer", "head", "token"))
    noun: ClassVar[str] = "share by head"

    last: Annotated[float, Field(gt=0, lt=1)]
    per: Granularity = ("layer", "head")
    link: Link = "unit"

    def table(self, shape: HeadShape, layer: int) -> Tensor:  # noqa: ARG002
        first, last = (math.log(-1 / math.log(share)) for share in (self.init, self.last))
        steps = max(shape.heads - 1, 1)
        times = [math.exp(first + (last - first) * head / steps) for head in range(shape.heads)]
        raw = [LINKS[self.link].inverse(math.exp(-1 / time)) for time in times]
        return torch.tensor(raw, dtype=torch.float32).view(1, -1, 1, 1)


class DecayTimes(GatedForgetting):
    """Decay by a gate, slow in some heads and fast in others."""

    source: ClassVar[str] = "Forgetting Transformer, data-independent forget gate; its released code"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The released code spreads the bias only if the gate does not depend on the token, hence per='head' here.",
    )

    kind: Literal["decay_times"] = "decay_times"
    gate: Annotated[HeadDecay, require_link("unit")] = HeadDecay(init=0.6, last=0.99)
    """The share f that a token keeps of earlier keys."""
