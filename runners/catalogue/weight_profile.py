"""The weights that an operator gives to one fixed row of logits, and their picture.

The row has both signs, one strong key and a cluster. Every operator gets the same queries and keys, whose scaled
product for the query shown is that row; beyond it, channels differ, so that signals and features have something to
differ in.
Everything is written as waves and not drawn, so that it is the same on every machine.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from grid.errors import SpecError
from grid.operator_view import Profile
from variants import Operator, attend
from variants.number import Contrast, HeadShape, KeyVector, Matrix, Number, Vector
from variants.operator import head_shape

LOGITS = (3.1, -0.4, 0.3, -1.2, -2.2, 0.2, 1.4, 1.7, 1.5, 1.3, -0.8, -0.1, 0.6)
"""z of the query and the 13 keys, in nats."""

LAST = len(LOGITS) - 1
"""The query that sees all keys."""

CHANNELS = 16
DIGITS = 3


def profiles(
    operator: Operator,
    shown: Mapping[str, float],
    query: int = LAST,
    logits: Sequence[float] = LOGITS,
    *,
    digits: int = DIGITS,
) -> list[Profile]:
    """The row of every head, equal ones once. Numbers are where they start, but for those `shown`, by "stage.field".

    The row is that of `query`, counted from 0, of which a causal model hides the later keys. Of a learned key, what is
    shown is its logit. Weights are rounded to `digits` after the point.
    """
    heads = heads_needed(operator)
    q, k = (x.expand(1, heads, *x.shape[2:]) for x in _queries_and_keys(operator.gate.channels, query, logits))
    shape = head_shape(operator, heads=heads, query=q.shape[-1], value=CHANNELS, width=1)
    numbers = {name: _at_start(number, shape) for name, number in operator.numbers().items()}
    for name, value in shown.items():
        numbers[name] = torch.full_like(numbers[name], value)
        if name.startswith("extra.") and isinstance(operator.numbers()[name], KeyVector):
            last = q[:, :, query : query + 1, :CHANNELS]
            numbers[name] = value * math.sqrt(CHANNELS) * last / last.norm() ** 2
    attended = attend(operator, q, k, q[..., :CHANNELS], numbers=numbers)

    def row(map_: Tensor, head: int) -> tuple[float, ...]:
        return tuple(round(each, digits) + 0.0 for each in map_[0, head, query].tolist())  # never -0

    rows = [row(attended.weights, head) for head in range(heads)]
    return [
        Profile(
            heads=_counted(alike, heads),
            keys=rows[alike[0]],
            ground=None if attended.ground is None else row(attended.ground, alike[0])[0],
            extra=None if attended.extra is None else row(attended.extra, alike[0])[0],
            total=row(attended.weights.sum(-1, keepdim=True), alike[0])[0],
        )
        for alike in ([head for head in range(heads) if rows[head] == each] for each in dict.fromkeys(rows))
    ]


def _counted(alike: list[int], heads: int) -> str:
    if len(alike) == heads:
        return ""
    first, last = alike[0] + 1, alike[-1] + 1
    return f"head {first} of {heads}" if first == last else f"heads {first} to {last} of {heads}"


def heads_needed(operator: Operator) -> int:
    """The fewest heads that the operator can have."""
    for heads in (1, 2, 4, 8):
        try:
            operator.score.check(heads)
        except ValueError:
            continue
        return heads
    raise SpecError(f"{operator.label!r} has no picture: its score takes neither 1, 2, 4 nor 8 heads")


def _waves(rows: int, columns: int, step: float) -> Tensor:
    """[rows, columns] of mean square near 1, no two rows alike."""
    row, column = torch.arange(rows, dtype=torch.float64)[:, None], torch.arange(columns, dtype=torch.float64)
    return math.sqrt(2) * torch.cos(step * (row + 1) * (column + 1) + row)


def _queries_and_keys(gate: int, query: int = LAST, logits: Sequence[float] = LOGITS) -> tuple[Tensor, Tensor]:
    """[1, 1, T, D + G]; the product of `query` with every key over sqrt(D) is `logits`, without the gate's."""
    z = torch.tensor(logits, dtype=torch.float64)
    q = _waves(len(logits), CHANNELS, 0.7)
    own = q[query] / q[query].norm()
    beside = _waves(len(logits), CHANNELS, 1.9)
    beside = beside - (beside @ own)[:, None] * own
    k = beside + (z * math.sqrt(CHANNELS) / q[query].norm())[:, None] * own
    q, k = (torch.cat((semantic, _waves(len(logits), gate, step)), -1) for semantic, step in ((q, 0.3), (k, 0.5)))
    return q[None, None], k[None, None]


def _at_start(number: Number, shape: HeadShape) -> Tensor:
    """A number's value at step 0 in layer 0; what is drawn is a wave in a matrix and its mean elsewhere."""
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
