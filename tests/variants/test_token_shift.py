"""Shift of keys and values towards the token before, against the recurrence in plain floats."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from ablate.variants import Backbone, Operator, Scalars, Transformer, differential, fox, llama2, qk_norm, softmax
from ablate.variants.model.block import Attention

LENGTH = 5


def build(shift: str, operator: Operator, **fields: object) -> Attention:
    backbone = llama2(layers=1, heads=4, width=32, feedforward_width=8)
    backbone = Backbone.model_validate({**backbone.data(), "token_shift": shift, **fields})
    model = Transformer(backbone, [operator], inputs=Scalars(width=3), seed=1).double()
    attention = model.blocks()[0].attention
    for parameter in attention.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return attention


def project(attention: Attention, x: Tensor) -> tuple[Tensor, ...]:
    return tuple(each.detach() for each in attention._project(x))


@pytest.mark.parametrize("operator", [softmax(), fox(), qk_norm(), differential()], ids=lambda each: each.label)
@pytest.mark.parametrize("shift", ["keys", "values", "both"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_each_head_mixes_its_keys_and_values_with_those_of_the_token_before(
    operator: Operator, shift: str, kv_heads: int
) -> None:
    plain = build("none", operator, kv_heads=kv_heads)
    shifted = build(shift, operator, kv_heads=kv_heads)
    shifted.qkv.weight.data.copy_(plain.qkv.weight.data)
    x = torch.randn(2, LENGTH, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (q, *before), (q_after, *after) = project(plain, x), project(shifted, x)
    assert torch.equal(q, q_after)
    assert shifted.shift is not None
    weight = shifted.shift.weight.detach()
    names, heads = {"both": ("keys", "values")}.get(shift, (shift,)), shifted.key_heads
    assert weight.shape == (len(names) * heads, 32)
    for name, old, new in zip(("keys", "values"), before, after, strict=True):
        if name not in names:
            assert torch.equal(old, new)
            continue
        for b, h, t in product(range(2), range(old.shape[1]), range(LENGTH)):
            row = weight[names.index(name) * heads + h * heads // old.shape[1]]
            s = 1 / (1 + math.exp(-(row @ x[b, t]).item()))
            previous = old[b, h, t - 1].tolist() if t else [0.0] * old.shape[-1]
            expected = [s * a + (1 - s) * c for a, c in zip(previous, old[b, h, t].tolist(), strict=True)]
            assert new[b, h, t].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_without_a_shift_the_model_and_its_key_are_as_before() -> None:
    backbone = llama2(layers=1, heads=4, width=32, feedforward_width=8)
    assert "token_shift" not in backbone.canonical
    shifted = backbone.changed(token_shift="both")
    assert shifted.key != backbone.key
    models = [Transformer(each, [softmax()], inputs=Scalars(), seed=0) for each in (backbone, shifted)]
    plain, more = (dict(model.named_parameters()) for model in models)
    assert more.keys() - plain.keys() == {"layers.0.attention.shift.weight"}
    assert all(torch.equal(value, more[name]) for name, value in plain.items())
