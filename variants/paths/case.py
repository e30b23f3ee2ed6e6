"""A call of attention as far as the choice of its execution path depends on it."""

from typing import NamedTuple, Self

import torch

from variants.attend import Heads


class Case(NamedTuple):
    """Lengths, device and precision of a call, and what it has besides queries, keys and values."""

    queries: int
    keys: int
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    biased: bool = False
    """True if positions add to the logits."""
    dropout: bool = False
    """True if weights are dropped."""
    compiled: bool = False
    """True if torch.compile traces the call."""
    channels: int = 64
    """Of a head's values; its queries have no more, beside those of a gate."""

    @classmethod
    def of(cls, heads: Heads) -> Self:
        """Return the case of a call with these heads."""
        (queries, keys), device = (heads.q.shape[-2], heads.k.shape[-2]), heads.q.device.type
        biased, dropout = heads.bias is not None, heads.dropout > 0
        return cls(queries, keys, device, heads.v.dtype, biased, dropout, channels=heads.v.shape[-1])

    @property
    def words(self) -> str:
        """The case in a sentence."""
        beside = [word for word, there in (("a position bias", self.biased), ("dropout", self.dropout)) if there]
        more = f", with {' and '.join(beside)}" if beside else ""
        return f"{self.keys} tokens on {self.device} in {str(self.dtype).removeprefix('torch.')}{more}"
