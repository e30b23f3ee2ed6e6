"""The family of position schemes."""

from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from grid.spec import Choice


class Positions(Choice):
    """A position scheme acts on the embeddings, on queries and keys, on the logits, or not at all."""

    source: ClassVar[str]
    """Where the formula is from."""

    @property
    @abstractmethod
    def table(self) -> int:
        """How many learned position vectors are added to the embeddings; 0 for none. No sequence may be longer."""

    def embedding(self, length: int, width: int, device: torch.device) -> Tensor | None:  # noqa: ARG002
        """Fixed vectors [T, width] that are added to the embeddings; None for none."""
        return None

    @property
    def rotates(self) -> bool:
        """Whether `rotate` changes anything."""
        return False

    def rotate(self, x: Tensor, *, signals: int) -> Tensor:  # noqa: ARG002  (the family's signature)
        """Queries or keys [B, H, T, D] with positions 0..T-1 in them; each of `signals` slices on its own."""
        return x

    def check_width(self, width: int) -> None:
        """Raise ValueError when slices of `width` channels cannot be rotated."""

    def fits(self, width: int) -> bool:
        """Whether slices of `width` channels can be rotated."""
        try:
            self.check_width(width)
        except ValueError:
            return False
        return True

    @property
    def adds_bias(self) -> bool:
        """Whether `bias` adds anything to the logits."""
        return False

    @property
    def buckets(self) -> int:
        """How many learned numbers per head `bias` looks up; 0 for none. One table serves all layers."""
        return 0

    def bias(self, distance: Tensor, heads: int, learned: Tensor | None, *, causal: bool) -> Tensor | None:  # noqa: ARG002
        """What is added to the logits, [H or 1, T_q, T_k] or None.

        `distance` [T_q, T_k] is i - j; `learned` [buckets, H] is the table, where there is one; in a `causal` model
        nothing is said about keys after the query.
        """
        return None


def bucket(distance: Tensor, count: int, max_distance: int) -> Tensor:
    """The bucket 0..count-1 of every distance >= 0 (int64, any shape), as in T5.

    The first half of the buckets holds one distance each; the others grow geometrically up to `max_distance`, and
    everything farther is in the last.
    """
    return torch.bucketize(distance, torch.tensor(_starts(count, max_distance), device=distance.device), right=True)


@lru_cache(maxsize=64)
def _starts(count: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance in every bucket but the first.

    In whole numbers, so that no rounding moves a border: n is in bucket e + k, of e exact ones and s others, from
    (n / e)^s >= (max_distance / e)^k on.
    """
    exact, others = count // 2, count - count // 2
    starts, n = list(range(1, exact + 1)), exact
    for k in range(1, others):
        while n**others * exact**k < max_distance**k * exact**others:
            n += 1
        starts.append(n)
    return tuple(starts)


def check_buckets(count: int, max_distance: int) -> None:
    """Raise ValueError when `bucket` has no meaning for so many buckets and such a distance."""
    if max_distance <= count // 2:
        raise ValueError(
            f"max_distance lies beyond the first half of the buckets, which hold one distance each; got {max_distance} "
            f"with count={count}, nearest is {count // 2 + 1}"
        )
