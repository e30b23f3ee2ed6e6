"""Running sums over a dimension but the last, as matrix products.

`cumsum` is slow there on a GPU. On the CPU its backward pass flips the gradient twice.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 64
"""Entries that one matrix product sums."""


def sum_in_blocks(
    v: Float[Tensor, "*maps tokens channels"], *, own: bool = True
) -> Float[Tensor, "*maps tokens channels"]:
    """Compute the running sum over tokens in blocks, whose sums are added up first.

    Without `own`, an entry gets the sum of those before it. An entry that is not finite makes all of its block NaN.
    """
    length = v.shape[-2]
    size = min(_BLOCK, length)
    blocks = F.pad(v, (0, 0, 0, -length % size)).reshape(*v.shape[:-2], -1, size, v.shape[-1])
    inside = _ones(size, v).tril(0 if own else -1) @ blocks
    if length > size:
        sums = blocks.sum(-2)
        inside = inside + (_ones(sums.shape[-2], v).tril(-1) @ sums)[..., None, :]
    return inside.flatten(-3, -2)[..., :length, :]


def _ones(size: int, v: Tensor) -> Float[Tensor, "size size"]:
    return torch.ones(size, size, dtype=v.dtype, device=v.device)
