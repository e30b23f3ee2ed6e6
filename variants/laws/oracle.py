"""The oracle: any operator in plain floats, with every term from its stage's own oracle and no tensors."""

import cmath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from torch import Tensor

from variants.number import Matrix, Vector
from variants.operator import Operator
from variants.stages.positions.rotary import Rotary

Row = list[float]
Rows = list[Row]
Value = float | Row | Rows


class Added(NamedTuple):
    """Effects of positions on the logits."""

    rotary: Rotary | None = None
    """Rotates all channels of a signal."""
    bias: list[Rows] | None = None
    """[H][T][T], added to the logits of the sequence's keys."""


def attend_in_floats(
    operator: Operator,
    heads: tuple[list[Rows], list[Rows], list[Rows]],
    seen: list[list[bool]],
    numbers: Mapping[str, Tensor],
    added: Added | None = None,
) -> list[Rows]:
    """Compute the output [H][T][D] of one sequence from q, k [H][T][D + G], v [H][T][D] and the model's mask [T][T].

    `numbers` by "stage.field" without the batch's axis: scalars [H or 1, T or 1, 1], vectors and matrices alike.
    `added` holds the effects of positions, None for none.
    """
    return _Floats(operator, heads, seen, numbers, added or Added()).output()


def _rotate(row: Row, position: int, base: float, slices: int) -> Row:
    """Rotate each slice: channels i and i + D/2 are a complex number, turned by position * base^(-2i/D)."""
    found, width = list(row), len(row) // slices
    for start in range(0, len(row), width):
        for i in range(width // 2):
            first, second = start + i, start + i + width // 2
            turned = complex(row[first], row[second]) * cmath.exp(1j * position * base ** (-2 * i / width))
            found[first], found[second] = turned.real, turned.imag
    return found


@final
class _Floats:
    def __init__(
        self,
        operator: Operator,
        heads: tuple[list[Rows], list[Rows], list[Rows]],
        seen: list[list[bool]],
        numbers: Mapping[str, Tensor],
        added: Added,
    ) -> None:
        q, k, self._v = heads
        rotary, self._bias = added
        self._operator, self._tensors, self._numbers = operator, numbers, operator.numbers()
        self._known: dict[tuple[str, int, int | None], dict[str, Any]] = {}
        self._heads, self._length = len(q), len(q[0])
        tokens = range(self._length)
        self._seen = [[operator.visible.oracle(seen, i, j) for j in tokens] for i in tokens]
        semantic = len(q[0][0]) - operator.gate.channels
        self._gate_q, self._gate_k = ([[row[semantic:] for row in rows] for rows in x] for x in (q, k))
        pairs = [
            [
                operator.preparation.oracle(a[:semantic], b[:semantic], **self._own("preparation", h, i))
                for i, (a, b) in enumerate(zip(q[h], k[h], strict=True))
            ]
            for h in range(self._heads)
        ]
        self._q, self._k = ([[pair[which] for pair in rows] for rows in pairs] for which in (0, 1))
        if rotary is not None:
            slices = operator.signals.count if operator.signals.rotary == "per_signal" else 1
            self._q, self._k = (
                [[_rotate(row, i, rotary.base, slices) for i, row in enumerate(rows)] for rows in x]
                for x in (self._q, self._k)
            )
        self._z = [[self._map(h, s) for h in range(self._heads)] for s in range(self._signals)]

    @property
    def _signals(self) -> int:
        return 1 if self._operator.merge.of_logits else self._operator.signals.count

    def output(self) -> list[Rows]:
        return [[self._row(h, i) for i in range(self._length)] for h in range(self._heads)]

    def _own(self, stage: str, head: int, token: int | None, prefix: str = "") -> dict[str, Any]:
        """Return the numbers of a stage at one head and token; for token None, lists over all tokens."""
        at = (f"{stage}.{prefix}", head, token)
        if at not in self._known:
            start, tokens = at[0], range(self._length) if token is None else [token]
            names = [name for name in self._numbers if name.startswith(start)]
            values = {name.removeprefix(start): [self._at(name, head, t) for t in tokens] for name in names}
            self._known[at] = values if token is None else {name: value for name, (value,) in values.items()}
        return self._known[at]

    def _at(self, name: str, head: int, token: int) -> Value:
        tensor, number = self._tensors[name], self._numbers[name]
        own = self._operator.heads_of(name, self._heads)  # a number is given for these, or for all heads
        at = head if tensor.shape[0] == self._heads else head - own.start
        rows = tensor[at if tensor.shape[0] > 1 else 0]
        if isinstance(number, Matrix):
            return rows.tolist()
        row = rows[token if rows.shape[0] > 1 else 0]
        return row.tolist() if isinstance(number, Vector) else row.item()

    def _product(self, head: int, q: Row, k: Row, distance: int, signal: int) -> float:
        """Compute the product of one signal, or the mean over signals if logits merge."""
        operator, width = self._operator, len(q) // self._operator.signals.count
        slices = range(operator.signals.count) if operator.merge.of_logits else [signal]
        own = self._own("product", head, 0)
        found = [
            operator.product.oracle(q[s * width :][:width], k[s * width :][:width], distance, self._length, **own)
            for s in slices
        ]
        return sum(found) / len(found)

    def _map(self, head: int, signal: int) -> Rows:
        q, k, tokens = self._q[head], self._k[head], range(self._length)

        def logit(i: int, j: int) -> float:
            z = self._transform(head, i, self._product(head, q[i], k[j], i - j, signal))
            return z if self._bias is None else z + self._bias[head][i][j]

        return [[logit(i, j) if self._seen[i][j] else 0.0 for j in tokens] for i in tokens]

    def _transform(self, head: int, i: int, z: float) -> float:
        return self._operator.transform.oracle(z, **self._own("transform", head, i))

    def _logit(self, head: int, i: int, z: float, suppression: float) -> float:
        operator = self._operator
        gamma = operator.normaliser.relevance_oracle(**self._own("normaliser", head, i))
        c = operator.margin.oracle(sum(self._seen[i]), **self._own("margin", head, i))
        return gamma + c * (z - gamma) - suppression

    def _weights(self, head: int, i: int, signal: int) -> tuple[Row, float]:
        """Compute the weights of the learned key, if any, the visible keys, and the ground state."""
        operator, logits = self._operator, []
        extra = operator.extra.oracle(**self._own("extra", head, i))
        if extra is not None:
            z = self._product(head, self._q[head][i], extra[0], 0, signal)
            logits.append(self._logit(head, i, self._transform(head, i, z), 0.0))
        for j in (j for j in range(self._length) if self._seen[i][j]):
            own = self._own("forgetting", head, None)
            lowering = operator.forgetting.oracle(self._z[signal][0], self._seen, i, j, **own)
            b = operator.gate.oracle(self._gate_q[head][i], self._gate_k[head][j], **self._own("gate", head, i))
            logits.append(self._logit(head, i, self._z[signal][head][i][j] - lowering, b))
        member, prefix = operator.score.of_head(head, self._heads)
        own = self._own("score", head, i, prefix)
        f = [member.oracle(a, **own) for a in logits]
        given = [member.size_oracle(a, **own) for a in logits] if operator.normaliser.needs == "signs" else f
        weights, ground = operator.normaliser.oracle(
            given, lambda a: member.oracle(a, **own), **self._own("normaliser", head, i)
        )
        if operator.normaliser.needs == "signs":
            weights = [(each > 0) * weight - (each < 0) * weight for each, weight in zip(f, weights, strict=True)]
        return weights, ground

    def _row(self, head: int, i: int) -> Row:
        operator = self._operator

        def stage(name: str) -> dict[str, Any]:
            return self._own(name, head, i)

        maps = [self._weights(head, i, s) for s in range(self._signals)]
        weights, ground = maps[0]
        if not operator.merge.of_logits:
            weights, ground = operator.merge.oracle([m[0] for m in maps], [m[1] for m in maps], **stage("merge"))
        extra = operator.extra.oracle(**stage("extra"))
        length = self._length + (extra is not None)
        weights, ground = operator.rescale.oracle(weights, ground, length, **stage("rescale"))
        left = iter(weights)
        values: list[Sequence[float]] = list(self._v[head])
        spread = [next(left)] if extra is not None else []
        if extra is not None:
            values.insert(0, extra[1] if extra[1] is not None else [0.0] * len(values[0]))
        spread += [next(left) if self._seen[i][j] else 0.0 for j in range(self._length)]
        output = operator.readout.oracle(spread, ground, [list(row) for row in values], **stage("readout"))
        output = operator.head_norm.oracle(output, **stage("head_norm"))
        return operator.output_gate.oracle(output, **stage("output_gate"))
