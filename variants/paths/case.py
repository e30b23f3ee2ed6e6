"""A call of attention as far as the choice of its path depends on it, and what paths have in common."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.variants.attend import Heads, Keywords
from ablate.variants.operator import Operator


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
    """Channels of a head's values. Queries have no more, beside those of a gate."""

    @classmethod
    def of(cls, heads: Heads) -> Self:
        (queries, keys), device = (heads.q.shape[-2], heads.k.shape[-2]), heads.q.device.type
        biased, dropout = heads.bias is not None, heads.dropout > 0
        return cls(queries, keys, device, heads.v.dtype, biased, dropout, channels=heads.v.shape[-1])

    @property
    def words(self) -> str:
        beside = [word for word, there in (("a position bias", self.biased), ("dropout", self.dropout)) if there]
        more = f", with {' and '.join(beside)}" if beside else ""
        return f"{self.keys} tokens on {self.device} in {str(self.dtype).removeprefix('torch.')}{more}"


def refuse_kinds(path: str, kinds: Mapping[str, tuple[str, ...]], operator: Operator) -> str | None:
    """Return why a path that computes `kinds` of some stages cannot run `operator`, or None if it can."""
    for stage, known in kinds.items():
        if (kind := getattr(operator, stage).kind) not in known:
            return f"{path} computes {stage} {' or '.join(map(repr, known))} only, not {kind!r}"
    return None


def row_factor(
    operator: Operator, c: Float[Tensor, "*#maps queries 1"] | None, value: Keywords
) -> Float[Tensor, "*#maps #queries 1"] | None:
    """Return the factor of a query's logits, c_i / tau; None for 1."""
    if operator.transform.label != "temperature":
        return c
    tau = value["transform"]["tau"]
    return 1 / tau if c is None else c / tau
