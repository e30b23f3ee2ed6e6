"""The weights that an operator gives to one fixed row of logits.

The row has both signs, one strong key and a cluster. Every operator gets the same queries and keys, whose scaled
product for the shown query is that row. Other channels differ, so that signals and features differ. All values are
waves and not random numbers, so they are the same on every machine.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.grid.docstrings import docstring
from ablate.grid.errors import SpecError
from ablate.variants import Operator, attend
from ablate.variants.attend import attention
from ablate.variants.number import Contrast, HeadShape, KeyVector, Matrix, Number, Vector
from ablate.variants.operator import head_shape

LOGITS = (3.1, -0.4, 0.3, -1.2, -2.2, 0.2, 1.4, 1.7, 1.5, 1.3, -0.8, -0.1, 0.6)
"""z of the query and the 13 keys, in nats."""

LAST = len(LOGITS) - 1
"""The query that sees all keys."""

CHANNELS = 16
DIGITS = 3


class Setting(NamedTuple):
    """Arguments and numbers that show an operator better than its start values."""

    arguments: Mapping[str, Any] = {}
    numbers: Mapping[str, float] = {}
    query: int = LAST
    """The query whose row is shown, counted from 0."""


_LEARNED_KEY: Final = Setting(numbers={"extra.learned_key": 2.0})
_AFFINE: Final = Setting(numbers={"rescale.scale": 0.6, "rescale.mean": 0.8})

SETTINGS: Final[Mapping[str, Setting]] = {
    "affine_scaled": _AFFINE,
    "affine_gated": _AFFINE,
    "differential": Setting(numbers={"merge.factor": 0.5}),
    "fox": Setting(numbers={"forgetting.gate": 0.8}),
    "fixed_value_bias": _LEARNED_KEY,
    "key_bias": _LEARNED_KEY,
    "key_value_bias": _LEARNED_KEY,
    "learned_sink": Setting(numbers={"normaliser.logit": 2.0}),
    "prefix_lm": Setting(arguments={"length": 8}, query=4),
    "principled": Setting(numbers={"margin.amplification": -1.0, "gate.strength": 0.0, "normaliser.threshold": 1.0}),
    "principled_gate": Setting(numbers={"gate.strength": 0.0}),
    "principled_ground": Setting(numbers={"normaliser.threshold": 1.0}),
    "principled_margin": Setting(numbers={"margin.amplification": -1.0}),
    "sliding_window": Setting(arguments={"size": 5}),
    "softcap": Setting(arguments={"cap": 2.0}),
}
"""By the name of the operator; all others are shown at their start."""


class Profile(NamedTuple):
    """Rounded weights of one query's row, for heads that share them."""

    heads: str
    """Heads, counted from 1; empty if all are alike."""
    keys: tuple[float, ...]
    ground: float | None
    """Weight of the ground state or sink."""
    extra: float | None
    """Weight of the learned key."""
    total: float
    """Sum over the keys of weights before rounding."""


def equation() -> str:
    """Return the equation of attention: the indented lines of the docstring of `ablate.variants.attend`."""
    lines = docstring(sys.modules[attention.__module__]).splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))


def profiles(operator: Operator, shown: Mapping[str, float], query: int = LAST) -> list[Profile]:
    """Compute the row of every head; equal rows are returned once.

    Args:
        operator: its numbers have their start values, except for those in `shown`.
        shown: values by "stage.field"; the value of a learned key is its logit.
        query: the query of the row, counted from 0. A causal model hides later keys from it.
    """
    heads = heads_needed(operator)
    q, k = (x.expand(1, heads, *x.shape[2:]) for x in _queries_and_keys(operator.gate.channels, query))
    shape = head_shape(operator, heads=heads, query=q.shape[-1], value=CHANNELS, width=1)
    numbers = {name: _at_start(number, shape) for name, number in operator.numbers().items()}
    for name in operator.by_key:
        numbers[name] = numbers[name].expand(-1, -1, k.shape[-2], -1)
    for name, value in shown.items():
        numbers[name] = torch.full_like(numbers[name], value)
        if name.startswith("extra.") and isinstance(operator.numbers()[name], KeyVector):
            last = q[:, :, query : query + 1, :CHANNELS]
            numbers[name] = value * math.sqrt(CHANNELS) * last / last.norm() ** 2
    width = q.shape[-1] - operator.added_channels
    attended = attend(operator, q, k, q[..., :CHANNELS], numbers=numbers, head_width=width)

    half_up = 10.0 ** -(DIGITS + 6)  # the last bits, and so which way a half is rounded, differ between processors

    def row(map_: Tensor, head: int) -> tuple[float, ...]:
        return tuple(round(each + half_up, DIGITS) + 0.0 for each in map_[0, head, query].tolist())

    rows = [row(attended.weights, head) for head in range(heads)]
    return [
        Profile(
            heads=head_words(alike[0], len(alike), heads),
            keys=rows[alike[0]],
            ground=None if attended.ground is None else row(attended.ground, alike[0])[0],
            extra=None if attended.extra is None else row(attended.extra, alike[0])[0],
            total=row(attended.weights.sum(-1, keepdim=True), alike[0])[0],
        )
        for alike in ([head for head in range(heads) if rows[head] == each] for each in dict.fromkeys(rows))
    ]


def head_words(first: int, count: int, heads: int) -> str:
    """Name `count` of `heads` heads from `first` on, counted from 0; all heads have no name."""
    if count == heads:
        return ""
    return f"head {first + 1} of {heads}" if count == 1 else f"heads {first + 1} to {first + count} of {heads}"


def heads_needed(operator: Operator) -> int:
    """Return the least number of heads that the operator allows."""
    for heads in (1, 2, 4, 8):
        try:
            operator.score.check(heads)
        except ValueError:
            continue
        return heads
    raise SpecError(f"{operator.label!r} has no picture: its score takes neither 1, 2, 4 nor 8 heads")


def _waves(rows: int, columns: int, step: float) -> Float[Tensor, "rows columns"]:
    """Make [rows, columns] with a mean square near 1 and different rows."""
    row, column = torch.arange(rows, dtype=torch.float64)[:, None], torch.arange(columns, dtype=torch.float64)
    return math.sqrt(2) * torch.cos(step * (row + 1) * (column + 1) + row)


def _queries_and_keys(
    gate: int, query: int
) -> tuple[Float[Tensor, "1 1 queries channels"], Float[Tensor, "1 1 keys channels"]]:
    """Make q and k [1, 1, T, D + G] so that q . k / sqrt(D) of `query` is `LOGITS`, without the gate's channels."""
    z = torch.tensor(LOGITS, dtype=torch.float64)
    q = _waves(len(LOGITS), CHANNELS, 0.7)
    own = q[query] / q[query].norm()
    beside = _waves(len(LOGITS), CHANNELS, 1.9)
    beside = beside - (beside @ own)[:, None] * own
    k = beside + (z * math.sqrt(CHANNELS) / q[query].norm())[:, None] * own
    q, k = (torch.cat((semantic, _waves(len(LOGITS), gate, step)), -1) for semantic, step in ((q, 0.3), (k, 0.5)))
    return q[None, None], k[None, None]


def _at_start(number: Number, shape: HeadShape) -> Float[Tensor, " 1 #heads rows columns"]:
    """Return a number at step 0 in layer 0. Random values are waves in a matrix and their mean elsewhere."""
    if isinstance(number, Matrix):
        size = number.entries(shape)[0]
        return number.init / math.sqrt(size) * _waves(size, size, 1.3)[None, None]
    if isinstance(number, Contrast):
        number = number.changed(form="scalar")
    elif isinstance(number, Vector) and number.spread:
        number = number.changed(spread=0.0)
    if number.trained:
        return number.value(number.table(shape, 0).double(), 0)
    return number.fixed_value(shape, 0).double()
