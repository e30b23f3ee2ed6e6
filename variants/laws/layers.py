"""Laws of a layer and of a model: projections, positions and predicted numbers."""

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants.laws.inputs import LENGTH, attentions, model_of, own_heads, predict_numbers, sequences, tiny
from ablate.variants.laws.law import Law, equal, near
from ablate.variants.laws.oracle import AddedLogits, attend_in_floats
from ablate.variants.links import Link
from ablate.variants.model.attention import Attention
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.block import LayerPosition, attention_of
from ablate.variants.number import Contrast, Matrix
from ablate.variants.operator import Operator, causal
from ablate.variants.stages.positions import Rotary

_TOKENS = 5
_CHANGED = 7
_LINKS: Mapping[Link, Callable[[Tensor], Tensor]] = {
    "identity": lambda raw: raw,
    "positive": lambda raw: math.e**raw,
    "at_least_one": lambda raw: 1 + (1 + raw.exp()).log(),
    "unit": lambda raw: 1 / (1 + (-raw).exp()),
    "clipped": lambda raw: (0.1 * raw + 0.5).maximum(0 * raw).minimum(0 * raw + 1),
}


def _layer(operator: Operator) -> None:
    """Check numbers per query with rotary signals, then numbers per token with rotary heads, if they fit."""
    for axis, rotary in (("query", "per_signal"), ("token", "before_split")):
        each = predict_numbers(operator, axis)
        turned = each.changed(signals=each.signals.changed(rotary=rotary))
        backbones = (backbone for wider in (1, 2) if (backbone := _rotary(turned, wider)) is not None)
        backbone = next(backbones, None)
        each, backbone = (turned, backbone) if backbone is not None else (each, tiny(each))
        attention = _draw_weights(attention_of(backbone, each, LayerPosition(1, {}, "auto")).double().eval())
        x = torch.randn(_TOKENS, backbone.width, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        words = f"a layer of {backbone.positions.label} positions, numbers per {axis}"
        equal(attention(x[None])[0], _in_floats(attention, x), words, oracle=True)


def _rotary(operator: Operator, wider: int) -> Backbone | None:
    """Return a backbone with rotary positions and wider heads, or None if it does not fit the operator."""
    try:
        small = tiny(operator)
        backbone = small.changed(positions=Rotary(), width=small.width * wider)
        backbone.check(operator)
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


def _in_floats(attention: Attention, x: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens width"]:
    """Compute the layer's output [T, W]; what is between the projections in plain floats."""
    heads, gate = attention.heads, attention.gate_channels
    q, k, v = (_by_head(part, heads) for part in attention.qkv(x).chunk(3, -1))
    if attention.gate is not None:
        added = (_by_head(part, heads) for part in attention.gate(x).split(heads * gate, -1))
        q, k = (torch.cat(both, -1) for both in zip((q, k), added, strict=True))
    numbers = {name: _number(attention, name, q, x) for name in attention.operator.numbers()}
    positions = attention.positions if isinstance(attention.positions, Rotary) else None
    rows, seen = (q.tolist(), k.tolist(), v.tolist()), causal(len(x), len(x)).tolist()
    joined = attend_in_floats(attention.operator, rows, seen, numbers, AddedLogits(positions))
    return attention.out(torch.tensor(joined, dtype=x.dtype).transpose(0, 1).flatten(1))  # type: ignore[no-any-return]


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.view(len(x), heads, -1).transpose(0, 1)


def _number(attention: Attention, name: str, q: Tensor, x: Tensor) -> Tensor:
    """Compute a number [H or 1, T or 1, entries] from its table and projection; a matrix is [H or 1, D, D]."""
    parameters, number, place = attention.numbers, attention.operator.numbers()[name], name.replace(".", "_")
    if not number.trained:
        return parameters.get_buffer(place)[0]
    raw = parameters.raw_table(name)[0]
    if isinstance(number, Contrast) and number.form == "vectors":
        start = number.deep + (number.init - number.deep) * math.exp(-number.rate * parameters.layer)
        up, down = ((raw[:, i] * raw[:, i + 1]).sum(-1).exp() for i in (0, 2))
        return (start + up - down)[:, None, None]
    if "query" in number.per:
        own = q[own_heads(attention.operator, name)]
        raw = raw + (own * parameters.raw_projection(name)[:, None]).sum(-1, keepdim=True)
    elif "token" in number.per:
        raw = raw + torch.stack([x @ u.T for u in parameters.raw_projection(name).view(len(raw), -1, x.shape[-1])])
    return raw if isinstance(number, Matrix) else _LINKS[number.link](raw)


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
    Law("layer", "A layer is the oracle between its projections, with rotary positions and predicted numbers.", _layer),
    Law("causality in a model", "In a model, what comes later changes nothing, not by one bit.", _causality_in_a_model),
)
