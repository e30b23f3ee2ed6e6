"""Random numbers that follow from a seed and a place alone, made on whatever device asks for them.

A generator of PyTorch gives other numbers on a GPU than on a CPU, and its numbers would have to be copied. These are
those of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014) at consecutive
counters, in integer arithmetic: the same bits everywhere. Normal variates agree to the rounding of float32.
"""

import math
from typing import final

import torch
from torch import Tensor

from variants.model.seeding import generator

CPU = torch.device("cpu")


def _signed(constant: int) -> int:
    """A 64-bit word as the int64 that PyTorch takes it as."""
    return constant - (1 << 64) if constant >> 63 else constant


_GOLDEN, _FIRST, _SECOND = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@final
class Draws:
    """A stream of numbers per (seed, path); each call draws on from where the last one ended."""

    def __init__(self, seed: int, *path: object, device: torch.device = CPU) -> None:
        self._start = generator(seed, *path).initial_seed()
        self._device = device
        self._drawn = 0

    def words(self, *shape: int) -> Tensor:
        """64 random bits each, int64."""
        wanted = math.prod(shape)
        counters = torch.arange(self._drawn + 1, self._drawn + 1 + wanted, device=self._device)
        self._drawn += wanted
        return self._mixed(counters).view(shape)

    def words_at(self, places: Tensor) -> Tensor:
        """The words that come at `places` of the stream, counted from 0: what belongs to a thing and to no step."""
        return self._mixed(places + 1)

    def uniform(self, *shape: int) -> Tensor:
        """From [0, 1), float64 with 53 random bits."""
        return unit(self.words(*shape))

    def normal(self, *shape: int) -> Tensor:
        """Standard normal, of the default precision (Box and Muller, one of each pair)."""
        return _normal(*self.uniform(2, *shape).unbind())

    def normal_at(self, places: Tensor) -> Tensor:
        """The standard normal numbers that belong to `places`, int64 from 0, however many others are asked for."""
        return _normal(unit(self.words_at(2 * places)), unit(self.words_at(2 * places + 1)))

    def below(self, bound: int, *shape: int) -> Tensor:
        """Whole numbers 0 ... bound - 1, int64; their probabilities differ by less than bound / 2^63."""
        return bounded(self.words(*shape), bound)

    def order(self, items: int, *rows: int) -> Tensor:
        """A random order of `items` things for every row, int64 [*rows, items]."""
        return self.uniform(*rows, items).argsort(-1)

    def _mixed(self, counters: Tensor) -> Tensor:
        word = counters * _GOLDEN + self._start
        word = (word ^ _shifted(word, 30)) * _FIRST
        word = (word ^ _shifted(word, 27)) * _SECOND
        return word ^ _shifted(word, 31)


def _normal(radius: Tensor, angle: Tensor) -> Tensor:
    """Of two uniform numbers."""
    return ((-2 * torch.log1p(-radius)).sqrt() * (2 * math.pi * angle).cos()).to(torch.get_default_dtype())


def unit(words: Tensor) -> Tensor:
    """Words as numbers from [0, 1), float64 with 53 random bits."""
    return _shifted(words, 11).double() * 2.0**-53


def bounded(words: Tensor, bound: int) -> Tensor:
    """Words as whole numbers 0 ... bound - 1, int64; their probabilities differ by less than bound / 2^63."""
    return _shifted(words, 1) % bound


def _shifted(word: Tensor, places: int) -> Tensor:
    """To the right, zeros from the left."""
    return (word >> places) & ((1 << (64 - places)) - 1)
