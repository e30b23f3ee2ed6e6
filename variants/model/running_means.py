"""Running means of a model that sees its batch in parts: they move once per step, by the mean over the whole batch.

A layer uses its running mean after it has moved, so the first part cannot be computed before every part has reached
that layer. All parts therefore pass through the layers side by side first, without gradients; then each is computed
with the means as they have become. That costs a forward pass, for a model with running means alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import UInt8
from torch import Tensor

from ablate.variants.axes import Inputs, Visibility
from ablate.variants.model.block import Block
from ablate.variants.model.foreign import Model
from ablate.variants.model.head_attention import present_tokens
from ablate.variants.model.transformer import Transformer

Pooled = Callable[[Tensor], Tensor]
"""From the sum over this process's parts to the sum over all parts of the batch."""


class BatchShare(NamedTuple):
    """A part of a batch, on the model's device."""

    inputs: Inputs
    weight: float
    """Its share of the batch's sequences, which counts if no token is padding."""
    noise: Callable[[], None]
    """Seeds what the model draws in this part."""
    visible: Visibility | None = None
    """As the model takes it."""


@final
class RunningMeans:
    """Takes the running means of `model` over: from now on they move here and in no forward pass."""

    def __init__(self, model: Model) -> None:
        self._model = model
        numbers = [block.attention.numbers for block in model.blocks()]
        for each in numbers:
            each.moving = False
        self._layers = max((layer for layer, each in enumerate(numbers, start=1) if each.averaging), default=0)

    @torch.no_grad()
    def move(self, shares: Sequence[BatchShare], pooled: Pooled) -> None:
        if not self._layers or not isinstance(self._model, Transformer):
            return
        parts = [_Passing(self._model, share) for share in shares]
        tokens = [part.tokens for part in parts if part.tokens is not None]
        if tokens:  # some are padding: weigh each part by its share of the batch's tokens
            total = pooled(torch.stack(tokens).sum())
            for part, count in zip(parts, tokens, strict=True):
                part.weight = count / total
        for layer, block in enumerate(self._model.blocks()[: self._layers]):
            averages = zip(*(part.averages(block) for part in parts), strict=True)
            block.attention.numbers.move([pooled(torch.stack(each).sum(0)) for each in averages])
            if layer < self._layers - 1:
                for part in parts:
                    part.passes(layer)


@final
class _Passing:
    """One part on its way through the layers, with the state of its own random numbers."""

    def __init__(self, model: Transformer, share: BatchShare) -> None:
        self.weight: float | Tensor = share.weight
        share.noise()
        self._hidden = model.embed(share.inputs)
        batch, length, device = *self._hidden.shape[:2], self._hidden.device
        self._layers = model.bind_layers(length, device, share.visible)
        self._mask = None if share.visible is None else model.mask(length, device, share.visible)
        present = present_tokens(self._mask)
        self.tokens = None if present is None else present.expand(batch, 1, length, 1).sum(dtype=torch.float32)
        """Its tokens without padding; None if nothing is hidden."""
        self._draws = _draws(device)

    def averages(self, block: Block) -> list[Tensor]:
        return [self.weight * each for each in block.averages(self._hidden, self._mask)]

    def passes(self, layer: int) -> None:
        device = self._hidden.device
        if device.type == "cuda":
            torch.cuda.set_rng_state(self._draws, device)
        else:
            torch.set_rng_state(self._draws)
        self._hidden = self._layers[layer](self._hidden)
        self._draws = _draws(device)


def _draws(device: torch.device) -> UInt8[Tensor, " bytes"]:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
