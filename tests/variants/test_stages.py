"""Facts about single stages and their operators that no general law knows."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants import (
    SSA,
    Backbone,
    Exponential,
    Number,
    Operator,
    Scalars,
    Transformer,
    attend,
    causal,
    differential,
    fox,
    gpt2,
    llama2,
    qk_norm,
    softmax,
)
from ablate.variants.model.attention import Attention
from ablate.variants.number import HeadShape
from ablate.variants.operator import distances
from ablate.variants.papers.beyond import fox_decay_times, ssmax
from ablate.variants.stages.forgetting import ForgetGate
from ablate.variants.stages.preparations import RMSNorm
from ablate.variants.stages.products import CosFormer
from ablate.variants.stages.scores import HeadGroups

EXACT = {"rtol": 1e-12, "atol": 1e-14}
LENGTH, D = 13, 8


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def qkv(width: int = 8, length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, [2, 3, T, D]."""
    return draw(2, 3, length, width, seed=1), draw(2, 3, length, width, seed=2), draw(2, 3, length, width, seed=3)


def of(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value, dtype=torch.float64)


def test_a_query_of_zeros_is_left_at_zero() -> None:
    q = torch.zeros(1, 1, 1, D, requires_grad=True)
    found, _ = RMSNorm().prepare(q, q, query_gain=torch.ones(D), key_gain=torch.ones(D))
    found.sum().backward()
    assert (found == 0).all()
    assert q.grad is not None
    assert q.grad.isfinite().all()


@pytest.mark.parametrize(("keys", "ours", "plain"), [(16, 0.963, 0.908), (256, 0.998, 0.368), (65536, 1.000, 0.002)])
def test_scalable_softmax_does_not_fade(keys: int, ours: float, plain: float) -> None:
    """Figure 1 of its paper: all logits -2 but one of 3, s = 0.43."""
    q, k = torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.full((1, 1, keys, 1), -2.0, dtype=torch.float64)
    k[..., -1, :] = 3
    found = attend(ssmax(), q, k, k, numbers={"margin.scale": of(0.43), "margin.bias": of(0.0)}).weights
    assert found.max().item() == pytest.approx(ours, abs=5e-4)
    assert attend(softmax(), q, k, k).weights.max().item() == pytest.approx(plain, abs=5e-4)


def test_decay_times_are_spaced_in_logarithm_over_heads() -> None:
    """The raw bias is that of the released code, -ln(e^(1/t) - 1)."""
    gate = fox_decay_times(shortest=2, longest=32).numbers()["forgetting.gate"]
    shape = HeadShape(heads=5, query=8, semantic=8, signal=8, value=8, width=40)
    raw = gate.table(shape, 0).flatten().tolist()
    assert raw == pytest.approx([-math.log(math.expm1(1 / time)) for time in (2, 4, 8, 16, 32)], rel=1e-6)
    assert gate.table(shape._replace(heads=1), 0).flatten().tolist() == raw[:1]
    with pytest.raises(SpecError, match=r"a decay time of 0\.0 tokens is not above 0; raise it"):
        fox_decay_times(shortest=0)
    with pytest.raises(SpecError, match=r"has init in \(0, 1\); got 1\.0"):
        gate.changed(init=1.0)


def test_recent_keys_lose_no_bits_in_a_long_sequence() -> None:
    """The difference of two running sums of 2000 logarithms would lose four digits here."""
    gate = draw(1, 1, 2000, 1).sigmoid().float()
    z, seen = torch.zeros(1, 1, 2000, 2000), causal(2000, 2000)
    lowering = ForgetGate().lowering(z, seen, gate=gate)
    last = -gate.double().log().flatten()
    torch.testing.assert_close(lowering[0, 0].diagonal(-1).double(), last[1:], rtol=1e-6, atol=1e-7)
    assert (lowering >= 0).all()


def test_a_gate_that_has_closed_is_finite() -> None:
    raw = torch.full((1, 1, LENGTH, 1), -200.0, requires_grad=True)
    q, k, v = (x[:1, :1].float() for x in qkv())
    output = attend(fox(), q, k, v, numbers={"forgetting.gate": raw.sigmoid()}).output
    output.sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    torch.testing.assert_close(output, v)  # each query is left with its own key


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_its_horizon_a_cosformer_logit_is_not_negative(dtype: torch.dtype) -> None:
    x = torch.ones(1, 1, 8, D, dtype=dtype)
    assert (CosFormer(length=7).logits(x, x, distances(8, 8)) >= 0).all()


def test_a_part_has_parameters_for_its_own_heads_only() -> None:
    for per, each in (("head", 2), ("query", 2 + 2 * 8), ("token", 2 + 2 * 32), ("layer", 1)):
        n, b = Number(init=1.5, per=per, link="at_least_one"), Number(init=1.0, link="positive")
        operator = Operator(score=HeadGroups(parts=(Exponential(), SSA(n=n, b=b))))
        model = Transformer(gpt2(layers=3, heads=4, width=32), [operator] * 3, inputs=Scalars(), seed=0)
        assert model.operator_parameters() == 3 * each
        heads = [head for layer, head, _, _ in model.numbers() if layer == 0]
        assert heads == ([None] if per == "layer" else [2, 3])


TOKEN_SHIFT_LENGTH = 5


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
    x = torch.randn(2, TOKEN_SHIFT_LENGTH, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
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
        for b, h, t in product(range(2), range(old.shape[1]), range(TOKEN_SHIFT_LENGTH)):
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
