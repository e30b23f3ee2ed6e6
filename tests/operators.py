"""Operators to prove laws about, found by walking the package: every named one, every choice of every stage."""

from collections.abc import Iterator

import torch
from torch import Tensor

from variants import (
    Gate,
    Ground,
    Margin,
    Normaliser,
    Operator,
    Readout,
    Score,
    integral,
    principled,
    softmax,
    ssa,
)
from variants.number import Number, Vector

HEAD_WIDTH = 8


def _named() -> Iterator[Operator]:
    yield softmax()
    yield ssa()
    yield integral(2)
    yield principled(gate_width=4)
    yield principled(gate_width=4, gate_dims="split", name="Principled split")


def _every_choice() -> Iterator[Operator]:
    families = {"margin": Margin, "gate": Gate, "score": Score, "normaliser": Normaliser, "readout": Readout}
    for stage, family in families.items():
        for kind, member in family.members().items():
            choice = member.example()
            ground = {"normaliser": Ground()} if getattr(choice, "needs_ground", False) else {}
            yield Operator(name=f"{stage} {kind}", **{stage: choice, **ground})
            if stage == "score":
                yield principled(gate_width=4).changed(name=f"Principled with {kind}", score=choice)


EXAMPLES = [*_named(), *_every_choice()]
IDS = [example.label.replace(" ", "-") for example in EXAMPLES]


def random_qkv(operator: Operator, *, length: int = 13, heads: int = 2, seed: int = 0) -> tuple[Tensor, ...]:
    """q, k [2, heads, T, D + added gate], v [2, heads, T, D], float64."""
    made = torch.Generator().manual_seed(seed)
    channels = HEAD_WIDTH + operator.added_channels
    shapes = ((2, heads, length, channels), (2, heads, length, channels), (2, heads, length, HEAD_WIDTH))
    return tuple(torch.randn(shape, generator=made, dtype=torch.float64) for shape in shapes)


def random_numbers(operator: Operator, *, heads: int = 2, seed: int = 1) -> dict[str, Tensor]:
    """Values in each number's range, one per head, away from where they start."""
    made = torch.Generator().manual_seed(seed)
    values = {}
    for name, number in operator.numbers().items():
        channels = HEAD_WIDTH if isinstance(number, Vector) else 1
        raw = torch.randn((1, heads, 1, channels), generator=made, dtype=torch.float64) * 0.5
        values[name] = _moved(number, raw)
    return values


def _moved(number: Number, raw: Tensor) -> Tensor:
    return number.linked(raw + (number.raw_init() if number.link != "identity" else 0))
