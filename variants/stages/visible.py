"""Which keys a query sees."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import PositiveInt

from ablate.variants.axes import Distances, Mask
from ablate.variants.stages.families import Visible


class Everything(Visible):
    """Every key that the model lets it see.

    The model's own mask: causal, or all keys of an encoder.
    """

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["everything"] = "everything"

    def restrict(self, mask: Mask, distance: Distances) -> Mask:
        return mask

    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        return seen[i][j]


class Prefix(Visible):
    """A prefix that every query sees whole (prefix language modelling).

        j is seen  <=>  the model lets i see j,  or  i < j < p

    The second case lifts causality within the first p tokens. Padding stays hidden: a key that the model hides from all
    queries, or a query from which it hides all keys. An encoder is not changed.

    The first `length` keys, besides what the model lets a query see.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, section 6 (prefix language modeling)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Predictions inside the prefix have seen their answers: the loss is to be taken after the prefix only.",
    )

    kind: Literal["prefix"] = "prefix"
    length: PositiveInt
    """How many keys every query sees: p. At 1 this is the causal mask."""

    @classmethod
    def example(cls) -> Self:
        return cls(length=9)

    @property
    def breaks(self) -> Mapping[str, str]:
        if self.length == 1:
            return {}
        return {
            "causality": "a query inside the prefix sees the prefix's later keys",
            "prefix": "a sequence cut inside the prefix hides keys that its queries saw",
        }

    @property
    def no_cache(self) -> None:
        """Kept keys do if the first tokens that come are the whole prefix."""
        return

    @property
    def ahead(self) -> int:
        return self.length - 1

    def restrict(self, mask: Mask, distance: Distances) -> Mask:
        inside = torch.arange(distance.shape[-1], device=distance.device) < self.length
        alive = mask.any(-1, keepdim=True) & mask.any(-2, keepdim=True)
        return mask | ((distance < 0) & inside & alive)

    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        return seen[i][j] or (i < j < self.length and any(seen[i]) and any(row[j] for row in seen))


class Window(Visible):
    """A sliding window: a query sees itself and the keys less than w away.

        j is seen  <=>  the model lets i see j  and  |i - j| < w

    In a causal model that is the last w keys, the query's own among them. Counting is that of "w keys"; libraries that
    take (left, right) are given (w - 1, 0).
    """

    source: ClassVar[str] = "When Attention Sink Emerges, section 6 (shifted window attention)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Layers pass information on: with L layers a token still depends on L (w - 1) tokens before it.",
    )

    kind: Literal["window"] = "window"
    size: PositiveInt
    """How many keys a causal query sees at most, its own included: w."""

    @classmethod
    def example(cls) -> Self:
        return cls(size=3)

    def restrict(self, mask: Mask, distance: Distances) -> Mask:
        return mask & (distance.abs() < self.size)

    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        return seen[i][j] and abs(i - j) < self.size
