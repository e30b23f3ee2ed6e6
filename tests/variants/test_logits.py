"""Stages before the score: visible keys and their logits. Facts that no general law knows."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from variants import Number, Vector, attend, causal, softmax
from variants.number import HeadShape, KeyVector
from variants.papers.attention_sinks import (
    fixed_value_bias,
)
from variants.papers.beyond import fox, ssmax
from variants.papers.signed_averaging import temperature
from variants.stages.extras.key_bias import KeyBias
from variants.stages.extras.key_value_bias import KeyValueBias
from variants.stages.forgetting.forget_gate import ForgetGate
from variants.stages.margins.ssmax import SSMax
from variants.stages.preparations.rms_norm import RMSNorm
from variants.stages.transforms.softcap import Softcap
from variants.stages.transforms.temperature import Temperature
from variants.stages.visible.prefix import Prefix
from variants.stages.visible.window import Window

T, D = 13, 8


def random_heads(*, length: int = T, width: int = D, heads: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [2, heads, T, width], float64."""
    made = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn((2, heads, length, width), generator=made, dtype=torch.float64) for _ in range(3))
    return q, k, v


def constant(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value, dtype=torch.float64)


def draw(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# which keys are seen


# preparation


def test_a_query_of_zeros_is_left_at_zero() -> None:
    q = torch.zeros(1, 1, 1, D, requires_grad=True)
    found, _ = RMSNorm().prepare(q, q, query_gain=torch.ones(D), key_gain=torch.ones(D))
    found.sum().backward()
    assert (found == 0).all()
    assert q.grad is not None
    assert q.grad.isfinite().all()


# a learned key


@pytest.mark.parametrize(("along", "expected"), [("first", [5.0] + [0.0] * 7), ("all", [5.0] * 8)])
def test_a_fixed_value_lies_along_its_direction(along: str, expected: list[float]) -> None:
    operator = fixed_value_bias(5.0, along=along)  # type: ignore[arg-type]
    number = operator.numbers()["extra.learned_value"]
    assert not number.trained
    assert number.fixed_value(HeadShape(2, D, D, D, D, 16), 0).flatten().tolist() == expected


# transforms and margins


@pytest.mark.parametrize(("keys", "ours", "plain"), [(16, 0.963, 0.908), (256, 0.998, 0.368), (65536, 1.000, 0.002)])
def test_scalable_softmax_does_not_fade(keys: int, ours: float, plain: float) -> None:
    """Figure 1 of its paper: all logits -2 but one of 3, s = 0.43."""
    q, k = torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.full((1, 1, keys, 1), -2.0, dtype=torch.float64)
    k[..., -1, :] = 3
    found = attend(ssmax(), q, k, k, numbers={"margin.scale": constant(0.43)}).weights
    assert found.max().item() == pytest.approx(ours, abs=5e-4)
    assert attend(softmax(), q, k, k).weights.max().item() == pytest.approx(plain, abs=5e-4)


def test_the_start_of_scalable_softmax_is_softmax_on_average() -> None:
    counts = torch.arange(1, 1025, dtype=torch.float64)[:, None]
    factor = SSMax().factor(counts, scale=constant(SSMax().scale.init))
    assert factor.mean().item() == pytest.approx(1, abs=5e-3)
    assert (factor[..., 0, :] == 0).all()


# forgetting


def test_recent_keys_lose_no_bits_in_a_long_sequence() -> None:
    """The difference of two running sums of 2000 logarithms would lose four digits here."""
    gate = draw(1, 1, 2000, 1).sigmoid().float()
    z, seen = torch.zeros(1, 1, 2000, 2000), causal(2000, 2000)
    lowering = ForgetGate().lowering(z, seen, gate=gate)
    last = -gate.double().log().flatten()
    torch.testing.assert_close(lowering[0, 0].diagonal(-1).double(), last[1:], rtol=1e-6, atol=1e-7)
    assert (lowering >= 0).all()


def test_a_gate_that_has_closed_is_finite() -> None:
    raw = torch.full((1, 1, T, 1), -200.0, requires_grad=True)
    q, k, v = (x[:1, :1].float() for x in random_heads())
    output = attend(fox(), q, k, v, numbers={"forgetting.gate": raw.sigmoid()}).output
    output.sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    torch.testing.assert_close(output, v)  # each query is left with its own key


# parameters added to a model


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "window of 0": (lambda: Window(size=0), "has size 1 or more; got 0, nearest is 1"),
    "prefix of 0": (lambda: Prefix(length=0), "1 key or more; got 0; leave `visible` out"),
    "temperature of 0": (lambda: temperature(0.0), r"init in \(0, inf\); got 0"),
    "temperature of any sign": (lambda: Temperature(tau=Number(init=1.0)), "needs link='positive'; got 'identity'"),
    "cap of any sign": (lambda: Softcap(cap=Number(init=30.0)), "needs link='positive'; got 'identity'"),
    "gate of any size": (lambda: ForgetGate(gate=Number(init=0.5)), "needs link='unit'; got 'identity'"),
    "gate of 0": (lambda: fox("constant", forget=0.0), r"use visible=Window\(size=1\)"),
    "value per token": (
        lambda: KeyValueBias(learned_value=Vector(init=0.0, per="token")),
        "one for all queries, per='constant', 'layer' or 'head'; got 'token'",
    ),
    "key per token": (lambda: KeyBias(learned_key=KeyVector(init=0.0, per="token")), "got 'token'"),
    "eps of 0": (lambda: RMSNorm(eps=0.0), "greater than 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_rule(case: str) -> None:
    build, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        build()
