"""A prefix that every query sees whole (prefix language modelling).

    j is seen  <=>  the model lets i see j,  or  i < j < p

The second case lifts causality within the first p tokens. Padding stays hidden: a key that the model hides from all
queries, or a query from which it hides all keys. An encoder is not changed.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import PositiveInt
from torch import Tensor

from variants.stages.families import Visible


class Prefix(Visible):
    """The first `length` keys, besides what the model lets a query see."""

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
    def ahead(self) -> int:
        return self.length - 1

    def restrict(self, mask: Tensor, distance: Tensor) -> Tensor:
        inside = torch.arange(distance.shape[-1], device=distance.device) < self.length
        alive = mask.any(-1, keepdim=True) & mask.any(-2, keepdim=True)
        return mask | ((distance < 0) & inside & alive)

    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        return seen[i][j] or (i < j < self.length and any(seen[i]) and any(row[j] for row in seen))
