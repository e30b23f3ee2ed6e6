"""The family of position schemes."""

from functools import lru_cache
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from grid.spec import Choice


class Positions(Choice):
    """A position scheme. It acts on the embeddings, on queries and keys, on the logits, or not at all."""

    source: ClassVar[str]
    """Source of the formula."""
    rotates: ClassVar[bool] = False
    """True if the scheme rotates queries and keys."""
    adds_bias: ClassVar[bool] = False
    """True if the scheme adds a bias to the logits."""

    @property
    def table(self) -> int:
        """Number of learned position vectors added to the embeddings, and of tokens at most; 0 for none."""
        return 0

    def embedding(self, length: int, width: int, device: torch.device) -> Tensor | None:  # noqa: ARG002
        """Return fixed vectors [T, width] to add to the embeddings; None for none."""
        return None

    def rotate(self, x: Tensor, *, signals: int) -> Tensor:  # noqa: ARG002  (the family's signature)
        """Rotate queries or keys [B, H, T, D] by positions 0..T-1, each of D's `signals` slices alike."""
        return x

    def check_width(self, width: int) -> None:
        """Raise ValueError if slices of `width` channels cannot be rotated."""

    @property
    def buckets(self) -> int:
        """Number of learned numbers per head that `bias` looks up; 0 for none. All layers share one table."""
        return 0

    def bias(self, distance: Tensor, heads: int, learned: Tensor | None, *, causal: bool) -> Tensor | None:  # noqa: ARG002
        """Return the bias of the logits, [H or 1, T_q, T_k] or None.

        `distance` [T_q, T_k] is i - j; `learned` [buckets, H] is the table, if any. In a `causal` model the bias of
        later keys is arbitrary.
        """
        return None


class Bucketed(Positions):
    """Adds a number for each bucket of distances; at most `count` buckets up to `max_distance`."""

    adds_bias: ClassVar[bool] = True

    count: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128

    @model_validator(mode="after")
    def _buckets_have_room(self) -> Self:
        if self.max_distance <= self.count // 2:
            raise ValueError(
                "max_distance lies beyond the first half of the buckets, which hold one distance each; got "
                f"{self.max_distance} with count={self.count}, nearest is {self.count // 2 + 1}"
            )
        return self


def bucket(distance: Tensor, count: int, max_distance: int) -> Tensor:
    """Return T5's bucket of distances >= 0: half of them hold one each, others grow up to `max_distance`."""
    return torch.bucketize(distance, torch.tensor(_starts(count, max_distance), device=distance.device), right=True)


@lru_cache(maxsize=64)
def _starts(count: int, max_distance: int) -> tuple[int, ...]:
    """Return the smallest distance of every bucket but the first.

    With e exact buckets and s others, n is in bucket e + k or above if (n / e)^s >= (max_distance / e)^k. Whole numbers
    avoid rounding at a border.
    """
    exact, others = count // 2, count - count // 2
    starts, n = list(range(1, exact + 1)), exact
    for k in range(1, others):
        while n**others * exact**k < max_distance**k * exact**others:
            n += 1
        starts.append(n)
    return tuple(starts)
