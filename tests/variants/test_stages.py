"""Facts about single stages and their operators that no general law knows."""

import math

import pytest
import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants import (
    SSA,
    Exponential,
    Number,
    Operator,
    Scalars,
    Transformer,
    attend,
    causal,
    gpt2,
    softmax,
)
from ablate.variants.number import HeadShape
from ablate.variants.operator import distances
from ablate.variants.papers.beyond import fox, fox_decay_times, ssmax
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
    with pytest.raises(SpecError, match=r"a decay time is a number of tokens above 0; got 0\.0; raise it"):
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
