"""The sum of forget gates between key and query, which several choices of forgetting have in common."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

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
