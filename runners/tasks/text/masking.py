"""Masking: which tokens of a sentence are hidden, and their replacements.

    P(pattern) = prod_i p^(h_i) (1 - p)^(1 - h_i) / (1 - (1 - p)^n)      h in {0, 1}^n, not all 0

Each of the n tokens is hidden with probability p; patterns that hide nothing are excluded. BabyBERTa draws again until
one hides something. Here the i-th token, from 0, is hidden with probability p / (1 - (1 - p)^(n - i)) while no earlier
one is, and with p after that. This is the same distribution from one number per token.

Source: BabyBERTa (Huebner et al. 2021, Using Child-Directed Language to Learn Robust Grammar) and its released code.
"""

import math
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from runners.tasks.counter_rng import Draws, map_below, unit
from runners.tasks.task import UNSCORED, Batch
from runners.tasks.text.encoder import Encoder

STEP = 16
"""Batches are padded to a multiple of this, so that they have few shapes."""


@final
class Sentences:
    """Sentences as token ids, one after another."""

    def __init__(self, sentences: Sequence[np.ndarray]) -> None:
        self.sizes = torch.tensor([len(each) for each in sentences], dtype=torch.int64)
        self._starts = self.sizes.cumsum(0) - self.sizes
        self.ids = torch.from_numpy(np.concatenate([np.zeros(0, np.int32), *sentences], dtype=np.int32))

    def __len__(self) -> int:
        return len(self.sizes)

    def to(self, device: torch.device) -> None:
        """Keep ids where batches are made; which sentences a batch has is decided on the CPU."""
        if self.ids.device != device:
            self.ids = self.ids.to(device)

    def frame(self, chosen: Tensor, end: int, widest: int) -> tuple[Tensor, Tensor]:
        """Return `end`, the tokens of a sentence, `end` and padding [B, T], and the number of tokens of each [B, 1].

        T is a multiple of `STEP`, or `widest`.
        """
        device = self.ids.device
        of_each = self.sizes[chosen]
        width = min(-(-(int(of_each.max()) + 2) // STEP) * STEP, widest)
        sizes, starts = of_each[:, None].to(device), self._starts[chosen][:, None].to(device)
        column = torch.arange(width, device=device)
        place = (starts + column - 1).clamp(0, len(self.ids) - 1)
        return torch.where(inside(column, sizes), self.ids[place].long(), end), sizes


def inside(column: Tensor, sizes: Tensor) -> Tensor:
    """Return a boolean [B, T]: True if a column [T] of a framed sentence is one of its own tokens."""
    return (column > 0) & (column <= sizes)


@final
class Masking:
    """Hides tokens of sentences of at most `longest` tokens; a pattern follows from a seed, a sentence and a number."""

    def __init__(self, encoder: Encoder, longest: int, *, masked: float, random: float, patterns: int) -> None:
        """Hide each token with probability `masked`; a share `random` of these is replaced by a random token."""
        assert encoder.mask is not None
        self._masked, self._random, self._patterns = masked, random, patterns
        self._mask, self._end, self._longest = encoder.mask, encoder.end, longest
        self._ordinary = torch.tensor([token for token in range(encoder.vocabulary) if token not in encoder.special])
        left = torch.arange(longest + 1, dtype=torch.float64)
        self._next = masked / -torch.expm1(left * math.log1p(-masked))
        self._next[:2] = 1.0  # the last token has to be hidden where no other is, whatever the rounding

    def batch(self, sentences: Sentences, chosen: Tensor, pattern: Tensor, draws: Draws) -> Batch:
        """Return ids, targets (-100 if not hidden) [B, T] and visible keys [B, 1, T] of the `chosen` sentences.

        The `pattern` of each, int64 [B] on the CPU, and its number decide which words of `draws` are used.
        """
        ids, sizes = sentences.frame(chosen, self._end, self._longest + 2)
        self._ordinary, self._next = self._ordinary.to(ids.device), self._next.to(ids.device)
        column = torch.arange(ids.shape[1], device=ids.device)
        number = (chosen * self._patterns + pattern)[:, None].to(ids.device)
        places = 3 * (number * (self._longest + 1) + column)
        which, how, other = draws.words_at(torch.stack((places, places + 1, places + 2)))
        hidden = self._hidden(unit(which), inside(column, sizes), sizes - column + 1)
        swapped = self._ordinary[map_below(other, len(self._ordinary))]
        instead = torch.where(unit(how) < self._random, swapped, self._mask)
        inputs, targets = torch.where(hidden, instead, ids), torch.where(hidden, ids, UNSCORED)
        return Batch(inputs, targets, (column < sizes + 2)[:, None])

    def _hidden(self, drawn: Tensor, own: Tensor, left: Tensor) -> Tensor:
        """`left` is the number of tokens from here to the end of the sentence, this one included."""
        begins = own & (drawn < self._next[left.clamp(0, self._longest)])
        first = begins & (begins.cumsum(1) == 1)
        return first | (own & (drawn < self._masked))
