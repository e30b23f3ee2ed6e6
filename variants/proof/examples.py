"""Operators to prove laws about, found by walking the package: every named one, every choice of every stage.

And what they are tried on: random heads of 8 channels and random values for their numbers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from grid.errors import SpecError
from variants.number import HeadShape, Matrix, Number
from variants.operator import KINDS, Operator, head_shape

HEAD_WIDTH = 8


def family(stage: str) -> type:
    """The family of choices of a stage of an operator."""
    found = Operator.model_fields[stage].annotation
    assert isinstance(found, type)
    return found


def every_choice() -> Iterator[Operator]:
    """An operator for every choice of every stage, the other stages as near to softmax as it allows."""
    for stage in KINDS:
        for kind, member in family(stage).members().items():  # type: ignore[attr-defined]
            yield around(stage, member.example()).changed(name=f"{stage} {kind}")


def around(stage: str, choice: object) -> Operator:
    """An operator with `choice` at `stage`: softmax otherwise, or with what makes the combination mean something."""
    for more in _SURROUNDINGS:
        try:
            return Operator().changed(**{**more, stage: choice})
        except SpecError:
            continue
    raise SpecError(f"no operator was found for {stage} {getattr(choice, 'label', choice)!r}")


_SURROUNDINGS: tuple[dict[str, object], ...] = (
    {},
    {"normaliser": {"kind": "ground"}},
    {"signals": {"count": 2}},
    {"normaliser": {"kind": "none"}},
)


class Inputs(NamedTuple):
    """Queries, keys, values and an operator's numbers, of float64 unless they are moved."""

    q: Tensor
    """[B, H, T, D + G]."""
    k: Tensor
    v: Tensor
    """[B, H, T, D]."""
    numbers: dict[str, Tensor]

    def heads(self, *, chosen: list[int]) -> "Inputs":
        """The same for some heads, in that order."""
        numbers = {name: value[:, chosen] if value.shape[1] > 1 else value for name, value in self.numbers.items()}
        return Inputs(self.q[:, chosen], self.k[:, chosen], self.v[:, chosen], numbers)


def random_inputs(
    operator: Operator, *, batch: int = 2, heads: int = 2, length: int = 13, seed: int = 0, scale: float = 1.0
) -> Inputs:
    """Standard normal q, k (times `scale`) and v; numbers in their range, one per head, away from where they start.

    Numbers that may vary by token are different at each.
    """
    made = torch.Generator().manual_seed(seed)
    channels = HEAD_WIDTH * operator.merge.heads_joined
    q, k, v = (
        torch.randn((batch, heads, length, size), generator=made, dtype=torch.float64)
        for size in (channels + operator.added_channels, channels + operator.added_channels, channels)
    )
    shape = head_shape(operator, heads=heads, query=q.shape[-1], value=channels, width=1)
    numbers = {name: _drawn(number, shape, (batch, length), made) for name, number in operator.numbers().items()}
    return Inputs(q * scale, k * scale, v, numbers)


def _drawn(number: Number, shape: HeadShape, tokens: tuple[int, int], made: torch.Generator) -> Tensor:
    """A value for every head, and for every token where the number may vary by token and does."""
    at = number.at(("layer", "head")) if ("layer", "head") in number.allowed and not number.random else number
    raw = at.table(shape, 0).double() if at.trained else at.fixed(shape, 0).double()
    raw = raw.expand(1, shape.heads, *raw.shape[2:])
    if {"query", "token"} & set(number.per):
        raw = raw.expand(tokens[0], -1, tokens[1], -1)
    spread = 0.3 if isinstance(number, Matrix) else 0.5
    raw = raw + spread * torch.randn(raw.shape, generator=made, dtype=torch.float64)
    return number.value(raw, 0) if at.trained else raw
