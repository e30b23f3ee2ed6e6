"""Counter-based random numbers: they depend on seed and place alone and are the same on every device.

These are the numbers of SplitMix64 (Steele, Lea and Flood 2014) at consecutive counters, in integer arithmetic. Normal
numbers agree to the rounding of float32.
"""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ablate.variants.model.seeding import generator

CPU = torch.device("cpu")


_GOLDEN, _FIRST, _SECOND = (
    word - (1 << 64) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)  # as int64


@final
class Draws:
    """A stream of numbers per (seed, path); each call continues it."""

    def __init__(self, seed: int, *path: object, device: torch.device = CPU) -> None:
        self._start = generator(seed, *path).initial_seed()
        self._device = device
        self._drawn = 0
        self._computed = torch.empty(0, dtype=torch.int64, device=device)

    def compute_ahead(self, count: int) -> None:
        """Compute the next `count` words at once: many small draws take longer."""
        self._computed = self._compute(count)

    def words(self, *shape: int) -> Int[Tensor, "..."]:
        """Draw words of 64 random bits, int64."""
        wanted = math.prod(shape)
        if wanted > len(self._computed):
            self._computed = self._compute(wanted)
        words, self._computed = self._computed[:wanted], self._computed[wanted:]
        self._drawn += wanted
        return words.view(shape)

    def _compute(self, count: int) -> Tensor:
        return self._mix(torch.arange(self._drawn + 1, self._drawn + 1 + count, device=self._device))

    def words_at(self, places: Int[Tensor, "*places"]) -> Int[Tensor, "*places"]:
        """Return the words at `places` of the stream, counted from 0."""
        return self._mix(places + 1)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """Draw from [0, 1), float64 with 53 random bits."""
        return unit(self.words(*shape))

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """Draw standard normal numbers of the default precision (Box and Muller, one of each pair)."""
        return _normal(*self.uniform(2, *shape).unbind())

    def normal_at(self, places: Int[Tensor, "*places"]) -> Float[Tensor, "*places"]:
        """Return the standard normal numbers at `places`, int64 from 0."""
        return _normal(unit(self.words_at(2 * places)), unit(self.words_at(2 * places + 1)))

    def below(self, bound: int, *shape: int) -> Int[Tensor, "..."]:
        """Draw whole numbers 0 ... bound - 1, int64; their probabilities differ by less than bound / 2^63."""
        return map_below(self.words(*shape), bound)

    def order(self, items: int, *rows: int) -> Int[Tensor, "*rows items"]:
        """Draw a random order of `items` things for every row, int64 [*rows, items]."""
        return self.uniform(*rows, items).argsort(-1)

    def _mix(self, counters: Int[Tensor, "*places"]) -> Int[Tensor, "*places"]:
        word = counters * _GOLDEN + self._start
        word = (word ^ _shift_right(word, 30)) * _FIRST
        word = (word ^ _shift_right(word, 27)) * _SECOND
        return word ^ _shift_right(word, 31)


def _normal(radius: Float[Tensor, "*places"], angle: Float[Tensor, "*places"]) -> Float[Tensor, "*places"]:
    return ((-2 * torch.log1p(-radius)).sqrt() * (2 * math.pi * angle).cos()).to(torch.get_default_dtype())


def unit(words: Int[Tensor, "*places"]) -> Float[Tensor, "*places"]:
    """Map words to [0, 1), float64 with 53 random bits."""
    return _shift_right(words, 11).double() * 2.0**-53


def map_below(words: Int[Tensor, "*places"], bound: int) -> Int[Tensor, "*places"]:
    """Map words to whole numbers 0 ... bound - 1, int64; their probabilities differ by less than bound / 2^63."""
    return _shift_right(words, 1) % bound


def _shift_right(word: Int[Tensor, "*places"], places: int) -> Int[Tensor, "*places"]:
    return (word >> places) & ((1 << (64 - places)) - 1)
