"""Laws of a layer and of a model: projections, positions and predicted numbers."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from grid.errors import SpecError
from variants.laws.inputs import LENGTH, attentions, model_of, own_heads, predict_numbers, sequences, tiny
from variants.laws.law import Law, near
from variants.laws.oracle import Added, Rows, attend_in_floats
from variants.laws.values import EXACT
from variants.links import Link
from variants.model.backbone import Backbone
from variants.model.block import Attention, LayerPosition
from variants.number import Contrast, Matrix, Number
from variants.operator import Operator, causal
from variants.stages.positions.rotary import Rotary

_TOKENS = 5
_CHANGED = 7
_LINKS: Mapping[Link, Callable[[float], float]] = {
    "identity": lambda raw: raw,
    "positive": math.exp,
    "at_least_one": lambda raw: 1 + math.log1p(math.exp(raw)),
    "unit": lambda raw: 1 / (1 + math.exp(-raw)),
    "clipped": lambda raw: min(1.0, max(0.0, 0.1 * raw + 0.5)),
}


def _layer(operator: Operator) -> None:
    """Check with numbers predicted from the query, then from the token, and with rotary positions if they fit.

    The first case rotates each signal by itself, the second the whole head.
    """
    for axis, rotary in (("query", "per_signal"), ("token", "before_split")):
        each = predict_numbers(operator, axis)
        turned = each.changed(signals=each.signals.changed(rotary=rotary))
        backbones = (backbone for wider in (1, 2) if (backbone := _rotary(turned, wider)) is not None)
        backbone = next(backbones, None)
        each, backbone = (turned, backbone) if backbone is not None else (each, tiny(each))
        attention = _draw_weights(Attention(backbone, each, LayerPosition(1, {}, "auto")).double().eval())
        x = torch.randn(_TOKENS, backbone.width, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        words = f"a layer of {backbone.positions.kind} positions, numbers per {axis}"  # type: ignore[attr-defined]
        expected = torch.tensor(_in_floats(attention, x), dtype=torch.float64)
        near(attention(x[None])[0], expected, words, **EXACT, oracle=True)


def _rotary(operator: Operator, wider: int) -> Backbone | None:
    """Return a backbone with rotary positions and wider heads, or None if it does not fit the operator."""
    try:
        small = tiny(operator)
        backbone = small.changed(positions=Rotary(), width=small.width * wider)
        heads, positions = backbone.heads, backbone.positions
        operator.check(heads=heads, kv_heads=heads, head_width=backbone.head_width, positions=positions)
    except (ValueError, SpecError):
        return None
    return backbone


@torch.no_grad()
def _draw_weights(attention: Attention) -> Attention:
    """Draw every weight and table at random, running means as well."""
    made = torch.Generator().manual_seed(6)
    own = {id(each) for each in attention.numbers.table.values()}
    for each in (*attention.parameters(), *attention.numbers.buffers()):
        noise = 0.3 * torch.randn(each.shape, generator=made, dtype=torch.float64)
        each.copy_(each + noise if id(each) in own or each.dim() == 4 else noise)
    return attention


def _in_floats(attention: Attention, x: Tensor) -> Rows:
    """Compute the layer's output [T][W] in plain floats."""
    heads, size, gate = attention.heads, attention.channels, attention.gate_channels
    rows = x.tolist()
    projected = _linear(attention.qkv, rows)
    parts = [_by_head(projected, part * heads * size, heads, size) for part in range(3)]
    if attention.gate is not None:
        gates = _linear(attention.gate, rows)
        for part in range(2):
            added = _by_head(gates, part * heads * gate, heads, gate)
            parts[part] = [[a + b for a, b in zip(*both, strict=True)] for both in zip(parts[part], added, strict=True)]
    q, k, v = parts
    numbers = {name: _number(attention, name, q, rows) for name in attention.operator.numbers()}
    seen = causal(len(rows), len(rows)).tolist()
    positions = attention.positions if isinstance(attention.positions, Rotary) else None
    found = attend_in_floats(attention.operator, (q, k, v), seen, numbers, Added(positions))
    return _linear(attention.out, [[each for head in found for each in head[t]] for t in range(len(rows))])


def _linear(layer: torch.nn.Linear, rows: Rows) -> Rows:
    weight: Rows = layer.weight.tolist()
    bias: list[float] = [0.0] * len(weight) if layer.bias is None else layer.bias.tolist()
    return [[_dot(w, row) + b for w, b in zip(weight, bias, strict=True)] for row in rows]


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _by_head(rows: Rows, start: int, heads: int, size: int) -> list[Rows]:
    """Split the columns from `start` on into [H][T][size]."""
    return [[row[start + h * size :][:size] for row in rows] for h in range(heads)]


def _number(attention: Attention, name: str, q: list[Rows], x: Rows) -> Tensor:
    """Compute a number [H or 1, T or 1, entries] from its table and projection; a matrix is [H or 1, D, D]."""
    parameters, number, place = attention.numbers, attention.operator.numbers()[name], name.replace(".", "_")
    if not number.trained:
        return parameters.get_buffer(place)[0]
    table: list[Rows] = (parameters.table[place] if number.bias else parameters.get_buffer(place))[0].tolist()
    if isinstance(number, Matrix):
        return torch.tensor(table, dtype=torch.float64)
    if isinstance(number, Contrast) and number.form == "vectors":
        return torch.tensor([[[_contrast(number, parameters.layer, *rows)]] for rows in table], dtype=torch.float64)
    if not {"query", "token"} & set(number.per):
        return torch.tensor([[_apply_link(number, row) for row in rows] for rows in table], dtype=torch.float64)
    projection: Rows = parameters.projection[place].tolist()
    found = []
    for at, (start,) in enumerate(table):
        if "query" in number.per:
            head = own_heads(attention.operator, name)[at]
            added = [[_dot(projection[at], each)] for each in q[head]]
        else:
            own = projection[at * len(start) :][: len(start)]
            added = [[_dot(row, x[t]) for row in own] for t in range(len(x))]
        found.append([_apply_link(number, [a + b for a, b in zip(start, row, strict=True)]) for row in added])
    return torch.tensor(found, dtype=torch.float64)


def _apply_link(number: Number, raw: list[float]) -> list[float]:
    return [_LINKS[number.link](each) for each in raw]


def _contrast(
    number: Contrast, layer: int, q_up: list[float], k_up: list[float], q_down: list[float], k_down: list[float]
) -> float:
    start = number.deep + (number.init - number.deep) * math.exp(-number.rate * layer)
    return start + math.exp(_dot(q_up, k_up)) - math.exp(_dot(q_down, k_down))


def _causality_in_a_model(operator: Operator) -> None:
    """Check with numbers predicted from the query, then from the token; projections are not 0."""
    if "causality" in operator.breaks:
        return
    for axis in ("query", "token"):
        model, made = model_of(predict_numbers(operator, axis)).eval(), torch.Generator().manual_seed(8)
        for attention in attentions(model):
            attention.qkv.weight.data *= 30
            for each in attention.numbers.projection.values():
                each.data.copy_(torch.randn(each.shape, generator=made, dtype=torch.float64))
        x = sequences()
        other = x.clone()
        other[:, _CHANGED:] += torch.randn(3, LENGTH - _CHANGED, 1, generator=made, dtype=torch.float64)
        came, expected = model(other)[:, :_CHANGED], model(x)[:, :_CHANGED]
        near(came, expected, f"another future in a model, from the eighth of {LENGTH} tokens on, numbers per {axis}")


LAWS = (
    Law("layer", "A layer is the plain floats of its projections, rotary positions and predicted numbers.", _layer),
    Law("causality in a model", "In a model, what comes later changes nothing, not by one bit.", _causality_in_a_model),
)
