"""The oracle: any operator in plain floats, with every term from its stage's own oracle and no tensors."""

import cmath
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from torch import Tensor

from ablate.variants.number import Matrix, Vector
from ablate.variants.operator import Operator
from ablate.variants.stages.positions import Rotary

Row = list[float]
Rows = list[Row]
Value = float | Row | Rows


class AddedLogits(NamedTuple):
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
    added: AddedLogits | None = None,
) -> list[Rows]:
    """Compute the output [H][T][D] of one sequence from q, k [H][T][D + G], v [H][T][D] and the model's mask [T][T].

    `numbers` by "stage.field" without the batch's axis: scalars [H or 1, T or 1, 1], vectors and matrices alike.
    `added` holds the effects of positions, None for none.
    """
    floats = _Floats(operator, heads, seen, numbers, added or AddedLogits())
    return [[floats.row(h, i) for i in range(len(rows))] for h, rows in enumerate(heads[0])]


def _rotate(row: Row, position: int, base: float, slices: int) -> Row:
    """Rotate each slice: channels i and i + D/2 are a complex number, turned by position * base^(-2i/D)."""
    rotated, width = list(row), len(row) // slices
    for start in range(0, len(row), width):
        for i in range(width // 2):
            first, second = start + i, start + i + width // 2
            turned = complex(row[first], row[second]) * cmath.exp(1j * position * base ** (-2 * i / width))
            rotated[first], rotated[second] = turned.real, turned.imag
    return rotated


@final
class _Floats:
    def __init__(
        self,
        operator: Operator,
        heads: tuple[list[Rows], list[Rows], list[Rows]],
        seen: list[list[bool]],
        numbers: Mapping[str, Tensor],
        added: AddedLogits,
    ) -> None:
        q, k, self._v = heads
        rotary, self._bias = added
        self._operator, self._tensors, self._numbers = operator, numbers, operator.numbers()
        self._known: dict[tuple[str, int, int | None], dict[str, Any]] = {}
        self._heads, self._tokens = len(q), range(len(q[0]))
        self._seen = [[operator.visible.oracle(seen, i, j) for j in self._tokens] for i in self._tokens]
        semantic = len(q[0][0]) - operator.gate.channels
        self._gate_q, self._gate_k = ([[row[semantic:] for row in rows] for rows in x] for x in (q, k))
        self._q, self._k = list[Rows](), list[Rows]()
        slices = operator.signals.count if operator.signals.rotary == "per_signal" else 1
        for h in range(self._heads):
            own = [self._own("preparation", h, i) for i in self._tokens]
            pairs = [
                operator.preparation.oracle(q[h][i][:semantic], k[h][i][:semantic], **own[i]) for i in self._tokens
            ]
            for into, which in ((self._q, 0), (self._k, 1)):
                rows = [list(pair[which]) for pair in pairs]
                into.append(
                    rows if rotary is None else [_rotate(row, i, rotary.base, slices) for i, row in enumerate(rows)]
                )
        self._signals = range(1 if operator.merge.of_logits else operator.signals.count)
        self._z = [[self._map(h, s) for h in range(self._heads)] for s in self._signals]

    def row(self, head: int, i: int) -> Row:
        operator = self._operator

        def own(stage: str) -> dict[str, Any]:
            return self._own(stage, head, i)

        maps = [self._weights(head, i, s) for s in self._signals]
        weights, ground = maps[0]
        if not operator.merge.of_logits:
            weights, ground = operator.merge.oracle([m[0] for m in maps], [m[1] for m in maps], **own("merge"))
        extra = operator.extra.oracle(**own("extra"))
        length = len(self._tokens) + (extra is not None)
        weights, ground = operator.rescale.oracle(weights, ground, length, **own("rescale"))
        left, values = iter(weights), [list(row) for row in self._v[head]]
        spread = [next(left)] if extra is not None else []
        if extra is not None:
            values.insert(0, [0.0] * len(values[0]) if extra[1] is None else list(extra[1]))
        spread += [next(left) if self._seen[i][j] else 0.0 for j in self._tokens]
        output = operator.readout.oracle(spread, ground, values, **own("readout"))
        output = operator.head_norm.oracle(output, **own("head_norm"))
        return operator.output_gate.oracle(output, **own("output_gate"))

    def _own(self, stage: str, head: int, token: int | None, prefix: str = "") -> dict[str, Any]:
        """Return the numbers of a stage at one head and token; for token None, lists over all tokens."""
        at = (f"{stage}.{prefix}", head, token)
        if at not in self._known:
            names = {name.removeprefix(at[0]): name for name in self._numbers if name.startswith(at[0])}
            self._known[at] = {
                short: [self._at(name, head, t) for t in self._tokens] if token is None else self._at(name, head, token)
                for short, name in names.items()
            }
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
        operator, width, length = self._operator, len(q) // self._operator.signals.count, len(self._tokens)
        slices = range(operator.signals.count) if operator.merge.of_logits else [signal]
        own = self._own("product", head, 0)
        products = [
            operator.product.oracle(q[s * width :][:width], k[s * width :][:width], distance, length, **own)
            for s in slices
        ]
        return sum(products) / len(products)

    def _transform(self, head: int, i: int, z: float) -> float:
        return self._operator.transform.oracle(z, **self._own("transform", head, i))

    def _map(self, head: int, signal: int) -> Rows:
        q, k = self._q[head], self._k[head]

        def logit(i: int, j: int) -> float:
            z = self._transform(head, i, self._product(head, q[i], k[j], i - j, signal))
            return z if self._bias is None else z + self._bias[head][i][j]

        return [[logit(i, j) if self._seen[i][j] else 0.0 for j in self._tokens] for i in self._tokens]

    def _weights(self, head: int, i: int, signal: int) -> tuple[Row, float]:
        """Compute the weights of the learned key, if any, the visible keys, and the ground state."""
        operator, logits = self._operator, list[float]()
        gamma = operator.normaliser.relevance_oracle(**self._own("normaliser", head, i))
        c = operator.margin.oracle(sum(self._seen[i]), **self._own("margin", head, i))
        extra = operator.extra.oracle(**self._own("extra", head, i))
        if extra is not None:
            z = self._transform(head, i, self._product(head, self._q[head][i], list(extra[0]), 0, signal))
            logits.append(gamma + c * (z - gamma))
        for j in (j for j in self._tokens if self._seen[i][j]):
            own = self._own("forgetting", head, None)
            z = self._z[signal][head][i][j] - operator.forgetting.oracle(self._z[signal][0], self._seen, i, j, **own)
            b = operator.gate.oracle(self._gate_q[head][i], self._gate_k[head][j], **self._own("gate", head, i))
            logits.append(gamma + c * (z - gamma) - b)
        member, prefix = operator.score.of_head(head, self._heads)
        own, numbers = self._own("score", head, i, prefix), self._own("normaliser", head, i)
        f = [member.oracle(a, **own) for a in logits]
        if operator.normaliser.needs != "signs":
            return operator.normaliser.oracle(f, lambda a: member.oracle(a, **own), **numbers)
        sizes = [member.size_oracle(a, **own) for a in logits]
        weights, ground = operator.normaliser.oracle(sizes, lambda a: member.oracle(a, **own), **numbers)
        return [(each > 0) * weight - (each < 0) * weight for each, weight in zip(f, weights, strict=True)], ground
