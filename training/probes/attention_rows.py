"""Rows of attention weights: shares of keys, masks, and means over a mask.

A row holds the weights that one query of one head gives to the keys. The share of a key is

    |w_ij| / (sum_j |w_ij| + |w_i*| + |w_i0|)

with the weights w_i* of a learned key and w_i0 of a ground state or sink. For softmax this is the weight itself. For
negative weights, or weights that do not sum to 1, it is the proxy of "When Attention Sink Emerges" (appendix D.6). A
row of zeros has no shares and is left out.

Positions count keys from 1. Sink tokens of the model are ordinary keys and come first: with one of them, position 1 is
the sink token and the sequence begins at position 2. Padding, a query that the model hides from itself, is left out.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ablate.training.probes.probe import NOWHERE, Probed
from ablate.variants.attend import visible_keys
from ablate.variants.model.transformer import LayerTrace


@final
class AttentionRows:
    """The rows of one layer."""

    def __init__(self, layer: LayerTrace) -> None:
        self._layer = layer
        self.weights = layer.worked.attended.weights
        """[B, H, T, T], from the operator; 0 if hidden."""

    @cached_property
    def real(self) -> Bool[Tensor, "batch heads queries"]:
        """True for tokens, False for padding."""
        own = self._layer.worked.heads.model_mask.diagonal(dim1=-2, dim2=-1)
        return own.expand(self.weights.shape[:-1])

    @cached_property
    def seen(self) -> Bool[Tensor, "batch heads queries keys"]:
        """True if the operator shows the key to the query and neither is padding."""
        mask = visible_keys(self._layer.operator, self._layer.worked.heads)
        return mask & self.real[..., :, None]

    def visible(self, position: int) -> Bool[Tensor, "batch heads queries"]:
        """Return True if the model shows the key at `position`, 0 for a learned one, to the query."""
        if position == 0:
            return self.real
        return self._layer.worked.heads.model_mask[..., position - 1] & self.real

    @cached_property
    def whole_sequence(self) -> Bool[Tensor, "batch heads"]:
        """True if nothing but the causal mask hides keys; False for padding or several documents."""
        mask = self._layer.worked.heads.model_mask
        later = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
        allowed = mask if (mask & later).any() else mask | later  # an encoder or a causal model
        return allowed.flatten(-2).all(-1).expand(self.weights.shape[:2])

    def weight(self, position: int) -> Float[Tensor, "batch heads queries"] | None:
        """Return the weights of the key at `position`, 0 for a learned key; None if there is no such key."""
        if position == 0:
            extra = self._layer.worked.attended.extra
            return None if extra is None else extra[..., 0].expand(self.weights.shape[:-1])
        return self.weights[..., position - 1] if position <= self.weights.shape[-1] else None

    @cached_property
    def of_keys(self) -> Float[Tensor, "batch heads queries"]:
        """Sums of |weights| of the rows, without learned key and ground state."""
        return self.weights.abs().sum(-1)

    @cached_property
    def whole(self) -> Float[Tensor, "batch heads queries"]:
        """Sums of |weights| of the rows, with learned key and ground state."""
        attended = self._layer.worked.attended
        sums = self.of_keys
        for other in (attended.ground, attended.extra):
            sums = sums if other is None else sums + other[..., 0].abs()
        return sums


def mean(
    values: Float[Tensor, "*values"], counted: Bool[Tensor, "*#values"], dims: tuple[int, ...]
) -> tuple[Float[Tensor, "*means"], Bool[Tensor, "*means"]]:
    """Return the mean over `dims` of the counted values, and True if there is any; without any the mean is 0."""
    counted = counted.expand_as(values)
    count = counted.sum(dims)
    return values.masked_fill(~counted, 0).sum(dims) / count.clamp(min=1), count > 0


def by_head(
    name: str,
    layer: int,
    means: tuple[Float[Tensor, " heads"], Bool[Tensor, " heads"]],
    point: Mapping[str, float] = NOWHERE,
    first: int = 0,
) -> Iterator[Probed]:
    """Yield a row for every head, counted from `first`, from (values, mask)."""
    for head, (value, is_there) in enumerate(zip(*(each.tolist() for each in means), strict=True), first):
        if is_there:
            yield Probed(name, value, layer, head, point)


def shares(values: Float[Tensor, "*values"], dim: int = -1) -> Float[Tensor, "*values"]:
    """Divide values of one sign by their sum; zeros stay zeros."""
    total = values.sum(dim, keepdim=True)
    return values / total.masked_fill(total == 0, 1)


def entropy(shared: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
    """Compute -sum p ln p over the last dimension, in nats, with 0 ln 0 = 0."""
    terms: Tensor = torch.special.entr(shared)
    return terms.sum(-1)
