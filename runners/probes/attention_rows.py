"""Rows of attention weights: which of them count, how much of a row a key has, and means of what counts.

A row is what one query of one head gives to the keys. The share of a key is

    |w_ij| / (sum_j |w_ij| + |w_i*| + |w_i0|)

with the weights w_i* of a learned key and w_i0 of a ground state or sink. Of softmax, also beside a learned key, a sink
or a ground state, that is the weight itself; of weights that are negative or do not sum to 1 it is the proxy of "When
Attention Sink Emerges" (appendix D.6). A row of zeros has no shares and is left out.

Positions count keys from 1; sink tokens of the model are keys like any other, and come first: with one of them,
position 1 is the sink token and the sequence begins at position 2. Padding, a query that the model hides from itself,
is left out.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from runners.probes.probe import NOWHERE, Probed
from variants.attend import visible_keys
from variants.model.transformer import LayerTrace


@final
class AttentionRows:
    """The rows of one layer."""

    def __init__(self, layer: LayerTrace) -> None:
        self._layer = layer
        self.weights = layer.worked.attended.weights
        """[B, H, T, T], as the operator gives them; 0 where hidden."""

    @cached_property
    def real(self) -> Tensor:
        """Boolean [B, H, T]: the token is not padding."""
        own = self._layer.worked.heads.model_mask.diagonal(dim1=-2, dim2=-1)
        return own.expand(self.weights.shape[:-1])

    @cached_property
    def seen(self) -> Tensor:
        """Boolean [B, H, T, T]: the operator lets the query see the key, and neither is padding."""
        mask = visible_keys(self._layer.operator, self._layer.worked.heads)
        return mask & self.real[..., :, None]

    def shown(self, position: int) -> Tensor:
        """Boolean [B, H, T]: the model, whatever the operator, lets the query see the key at `position`; 0 is a learned
        key, which every query sees."""
        if position == 0:
            return self.real
        return self._layer.worked.heads.model_mask[..., position - 1] & self.real

    @cached_property
    def whole_sequence(self) -> Tensor:
        """Boolean [B, H]: nothing of the sequence is hidden but what a causal model hides anyway; False for one with
        padding or of several documents."""
        mask = self._layer.worked.heads.model_mask
        later = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
        shown = mask if (mask & later).any() else mask | later  # of an encoder, or of a causal model
        return shown.flatten(-2).all(-1).expand(self.weights.shape[:2])

    def weight(self, position: int) -> Tensor | None:
        """[B, H, T]: what every query gives to the key at `position`, 0 for a learned key; None where there is none."""
        if position == 0:
            extra = self._layer.worked.attended.extra
            return None if extra is None else extra[..., 0].expand(self.weights.shape[:-1])
        return self.weights[..., position - 1] if position <= self.weights.shape[-1] else None

    @cached_property
    def of_keys(self) -> Tensor:
        """[B, H, T]: the sizes of a row's weights together, without learned key and ground state."""
        return self.weights.abs().sum(-1)

    @cached_property
    def whole(self) -> Tensor:
        """[B, H, T]: the same with them."""
        attended = self._layer.worked.attended
        found = self.of_keys
        for beside in (attended.ground, attended.extra):
            found = found if beside is None else found + beside[..., 0].abs()
        return found


def mean(values: Tensor, counted: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The mean over `dims` of the values that count, and whether any does; 0 where none does."""
    counted = counted.expand_as(values)
    count = counted.sum(dims)
    return values.masked_fill(~counted, 0).sum(dims) / count.clamp(min=1), count > 0


def by_head(
    name: str, layer: int, found: tuple[Tensor, Tensor], point: Mapping[str, float] = NOWHERE
) -> Iterator[Probed]:
    """A row for every head: values [H], where the second [H] says that there is one."""
    values, there = found
    for head, (value, is_there) in enumerate(zip(values.tolist(), there.tolist(), strict=True)):
        if is_there:
            yield Probed(name, value, layer, head, point)


def shares(values: Tensor, dim: int = -1) -> Tensor:
    """Values of one sign as shares of their sum; zeros where all are 0."""
    total = values.sum(dim, keepdim=True)
    return values / total.masked_fill(total == 0, 1)


def entropy(shared: Tensor) -> Tensor:
    """-sum p ln p over the last dimension, in nats; 0 ln 0 is 0."""
    terms: Tensor = torch.special.entr(shared)
    return terms.sum(-1)
