"""Numbers become parameters: tables along their axes, and a projection of the query where they vary along it."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from variants.number import Number, Vector
from variants.operator import Operator


class HeadShape(NamedTuple):
    """What a layer's heads look like to a number: how many, channels of q (with the gate's), channels of v."""

    heads: int
    query_channels: int
    value_channels: int


class NumberParameters(nn.Module):
    """The numbers of one layer's operator. `shared` holds what several layers have in common, by number name."""

    def __init__(self, operator: Operator, shape: HeadShape, shared: dict[str, nn.Parameter]) -> None:
        super().__init__()
        self.numbers = operator.numbers()
        self.table = nn.ParameterDict()
        self.projection = nn.ParameterDict()
        for name, number in self.numbers.items():
            if not number.trained:
                self.register_buffer(_attribute(name), _filled(number, shape, number.init), persistent=False)
                continue
            table = nn.Parameter(_filled(number, shape, number.raw_init()))
            if "layer" not in number.per:
                table = shared.setdefault(f"{operator.key} {name}", table)
            self.table[_attribute(name)] = table
            if "query" in number.per:
                self.projection[_attribute(name)] = nn.Parameter(torch.zeros(shape.heads, shape.query_channels))

    def values(self, query: Tensor) -> dict[str, Tensor]:
        """Every number, ready to broadcast; `query` [B, H, T, D + G] is unrotated and unscaled."""
        return {name: self._value(name, number, query) for name, number in self.numbers.items()}

    def _value(self, name: str, number: Number, query: Tensor) -> Tensor:
        if not number.trained:
            return self.get_buffer(_attribute(name))
        raw = self.table[_attribute(name)]
        if "query" in number.per:
            raw = raw + torch.einsum("bhtd,hd->bht", query.float(), self.projection[_attribute(name)])[..., None]
        return number.linked(raw)

    def learned(self) -> Iterator[tuple[int | None, str, float]]:
        """(head or None, name, value) of every trained number; a vector's value is its Euclidean norm.

        Of a number predicted from the query, the value at a zero query.
        """
        for name, number in self.numbers.items():
            if not number.trained:
                continue
            values = number.linked(self.table[_attribute(name)].detach()).float()
            values = values.norm(dim=-1) if isinstance(number, Vector) else values
            per_head = values.flatten().tolist()
            for head, value in enumerate(per_head):
                yield (head if "head" in number.per else None), name, value


def _filled(number: Number, shape: HeadShape, value: float) -> Tensor:
    heads = shape.heads if "head" in number.per else 1
    channels = shape.value_channels if isinstance(number, Vector) else 1
    return torch.full((1, heads, 1, channels), value, dtype=torch.float32)


def _attribute(name: str) -> str:
    return name.replace(".", "_")
