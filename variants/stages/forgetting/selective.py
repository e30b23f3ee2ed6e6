"""Selective attention: keys that earlier queries of the first head attended to count less for later queries.

    F_ij = sum_{l < i, l != j} relu(z_lj of the first head)          z_ij - F_ij  in every head

A token does not mask itself, and key 0 is never masked. A padding query, whose own key is hidden, masks nothing.
There are no parameters.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from grid.errors import SpecError
from variants.stages.families import Forgetting


class Selective(Forgetting):
    """Lowered by what the first head's earlier queries selected."""

    source: ClassVar[str] = "Selective Attention Improves Transformer, section 3"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The first head's own logits are lowered as well, but F is taken from them as they were before.",
    )

    kind: Literal["selective"] = "selective"

    @property
    def breaks(self) -> Mapping[str, str]:
        return {"heads": "the first head's logits lower those of all heads"}

    def lowering(self, z: Tensor, mask: Tensor) -> Tensor:
        queries, keys = z.shape[-2:]
        if queries != keys:
            raise SpecError(f"selective attention needs as many queries as keys; got {queries} for {keys}")
        chosen = z[..., :1, :, :].relu()
        exempt = torch.eye(keys, dtype=torch.bool, device=z.device)
        exempt[:, 0] = True
        first = mask[..., :1, :, :] if mask.dim() > 2 else mask
        hidden = ~first.diagonal(dim1=-2, dim2=-1)[..., None]  # tokens that are not there, as padding is
        before = F.pad(chosen.masked_fill(exempt | hidden, 0)[..., :-1, :], (0, 0, 1, 0))
        return before.cumsum(-2)

    def oracle(self, first: list[list[float]], seen: list[list[bool]], i: int, j: int) -> float:
        return sum(max(first[l][j], 0.0) for l in range(i) if l != j and seen[l][l]) if j > 0 else 0.0
