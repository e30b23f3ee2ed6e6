"""Where training has moved the operators' numbers: `number.<stage>.<field>` for every layer and head."""

from collections.abc import Iterator
from typing import NamedTuple

from variants import Transformer


class Probed(NamedTuple):
    """One value of a probe; `head` is None for what all heads of the layer share."""

    name: str
    value: float
    layer: int
    head: int | None


def learned_numbers(model: Transformer) -> Iterator[Probed]:
    """The value of every learned number; of a vector its norm, of a per-query number its value at a zero query."""
    for layer, head, name, value in model.numbers():
        yield Probed(f"number.{name}", value, layer, head)
