"""A forget gate: the logit of a key falls with every later token that forgets.

    z_ij + sum_{l = j+1 .. i} ln f_l          0 < f_l <= 1

The sum is over the tokens that query i sees. Keys after the query, in an encoder, are not lowered. The Forgetting
Transformer predicts f from the token. One f per head is a learned linear decay: ALiBi with a trained slope -ln f.
With f = 1 nothing is forgotten.
"""

import math
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional as F

from variants.number import Number, require_link
from variants.stages.families import Forgetting


class GatedForgetting(Forgetting):
    """Lowers a logit by the sum of -ln f over the later tokens that the query sees."""

    def lowering(self, z: Tensor, mask: Tensor, *, gate: Tensor) -> Tensor:
        queries, keys = z.shape[-2:]
        log = gate.clamp(min=torch.finfo(gate.dtype).tiny).log().transpose(-2, -1)  # [..., 1, T]: of the token l
        until = torch.ones(queries, keys, dtype=torch.bool, device=z.device).tril(keys - queries)
        seen = log.to(z.dtype) * (mask & until)
        after = F.pad(seen[..., 1:], (0, 1))
        return -after.flip(-1).cumsum(-1).flip(-1)  # from the near end, so that recent keys lose no bits

    def oracle(self, first: list[list[float]], seen: list[list[bool]], i: int, j: int, *, gate: list[float]) -> float:  # noqa: ARG002
        return -sum(math.log(gate[l]) for l in range(j + 1, i + 1) if seen[i][l])


class ForgetGate(GatedForgetting):
    """Decay by a gate of every token between key and query."""

    source: ClassVar[str] = "Forgetting Transformer, section 3"
    traps: ClassVar[tuple[str, ...]] = (
        "It starts at f = 0.5, as in the released code: a weight halves with every token until the gate has learned.",
    )

    kind: Literal["forget_gate"] = "forget_gate"
    gate: Annotated[Number, require_link("unit")] = Number(init=0.5, per="token", link="unit")
    """The share f that a token keeps of earlier keys."""

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.gate.init == 0:
            raise ValueError("a forget gate of 0 leaves only the query's own key; use visible=Window(size=1)")
        return self
