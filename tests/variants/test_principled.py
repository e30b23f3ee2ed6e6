"""Principled Attention: the numerics that are easy to get wrong."""

import math

import pytest
import torch
from operators import random_qkv
from torch import Tensor

from variants import Exponential, Ground, GroundValue, LogCount, Operator, Suppress, attend, causal, principled, softmax

EXACT = {"rtol": 1e-12, "atol": 1e-14}


def numbers(alpha: float = -5.0, beta: float = -5.0, gamma: float = 0.0, v0: float = 0.0) -> dict[str, Tensor]:
    named = {
        "margin.amplification": alpha,
        "gate.strength": beta,
        "normaliser.threshold": gamma,
        "readout.ground_value": v0,
    }
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in named.items()}


plain = Exponential().log_score
GROUND = Operator(normaliser=Ground(), readout=GroundValue())


def only(values: dict[str, Tensor], operator: Operator) -> dict[str, Tensor]:
    return {name: values[name] for name in operator.numbers()}


def test_far_below_threshold_it_is_softmax() -> None:
    operator = principled(gate_width=4)
    q, k, v = random_qkv(operator)
    found = attend(operator, q, k, v, numbers=numbers(alpha=-60, beta=-60, gamma=-40, v0=3.0)).output
    semantic = q.shape[-1] - 4
    expected = attend(softmax(), q[..., :semantic], k[..., :semantic], v).output
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_far_above_threshold_it_rests_in_the_ground_value() -> None:
    attended = attend(GROUND, *random_qkv(GROUND), numbers=only(numbers(gamma=60, v0=2.0), GROUND))
    torch.testing.assert_close(attended.output, torch.full_like(attended.output, 2.0), rtol=1e-9, atol=0)


def test_keys_that_all_clear_the_threshold_leave_nothing_to_the_ground() -> None:
    q, k, v = (x.abs() for x in random_qkv(GROUND))
    attended = attend(GROUND, q, k, v, numbers=only(numbers(gamma=-0.001), GROUND))
    assert (attended.ground == 0).all()
    torch.testing.assert_close(attended.output, attend(softmax(), q, k, v).output, **EXACT)


def test_hidden_keys_add_nothing_to_the_denominator() -> None:
    q, k, v = random_qkv(GROUND, length=13)
    first = attend(GROUND, q, k, v, numbers=only(numbers(gamma=0.5), GROUND))
    z = (q[:, :, :1] * k[:, :, :1]).sum(-1) / math.sqrt(q.shape[-1])
    torch.testing.assert_close(first.weights[:, :, 0, 0], (z[..., 0] - 0.5).exp().clamp(max=1), **EXACT)


def test_a_tie_with_the_threshold_counts_as_relevant() -> None:
    _, k, v = random_qkv(GROUND)
    zero = torch.zeros_like(k).requires_grad_()  # every logit is 0 = gamma
    ours = attend(GROUND, zero, k, v, numbers=only(numbers(), GROUND))
    (gradient,) = torch.autograd.grad(ours.output.square().sum(), zero)
    (expected,) = torch.autograd.grad(attend(softmax(), zero, k, v).output.square().sum(), zero)
    assert (ours.ground == 0).all()
    torch.testing.assert_close(gradient, expected, **EXACT)


def test_a_far_threshold_costs_no_bits_of_the_logit() -> None:
    operator = Operator(margin=LogCount(), normaliser=Ground())
    q, k, v = (x.float() for x in random_qkv(operator))
    values = {
        name: torch.tensor(value)
        for name, value in {"margin.amplification": -200.0, "normaliser.threshold": -1e4}.items()
    }
    found = attend(operator, q, k, v, numbers=values).output
    torch.testing.assert_close(found, attend(softmax(), q, k, v).output, rtol=2e-6, atol=2e-7)


def test_a_tiny_shortfall_is_not_lost_to_cancellation() -> None:
    q = torch.tensor([[[[1.0]]]])
    k = torch.tensor([[[[25.0], [-0.01]]]])
    values = {"normaliser.threshold": torch.tensor(0.0)}
    attended = attend(Operator(normaliser=Ground()), q, k, k, mask=torch.ones(1, 2, dtype=torch.bool), numbers=values)
    expected = -math.expm1(-0.01) / (math.exp(25.0) + 1)
    assert attended.ground is not None
    assert attended.ground.item() == pytest.approx(expected, rel=1e-3, abs=0)
    assert 1 - attended.weights.sum().item() != pytest.approx(expected, rel=0.5, abs=0)  # the other way loses it


def test_ground_mass_grows_with_irrelevant_keys() -> None:
    def relevant_weight(keys: int) -> float:
        z = torch.full((1, 1, 1, keys), -50.0)
        z[..., 0] = 2.0
        return float(
            Ground().weights(z, torch.ones(1, keys, dtype=torch.bool), plain, threshold=torch.tensor(0.0)).keys[..., 0]
        )

    for keys in (1, 10, 100):
        assert relevant_weight(keys) == pytest.approx(math.exp(2) / (math.exp(2) + keys - 1), rel=1e-6)


@pytest.mark.parametrize(("margin", "expected"), [(0.9, (0.61, 0.49)), (1.1, (0.83, 0.88))])
def test_a_margin_over_one_survives_any_number_of_keys(margin: float, expected: tuple[float, float]) -> None:
    """With p = softplus(alpha) = 1, the weight of one relevant key tends to 1 exactly when p (s - gamma) > 1."""
    operator = Operator(margin=LogCount(), normaliser=Ground())
    values = {
        "margin.amplification": torch.tensor(math.log(math.expm1(1.0)), dtype=torch.float64),
        "normaliser.threshold": torch.tensor(0.0, dtype=torch.float64),
    }
    found = []
    for keys in (100, 10_000):
        q = torch.ones((1, 1, 1, 1), dtype=torch.float64)
        k = torch.full((1, 1, keys, 1), -1e-9, dtype=torch.float64)  # just under the threshold
        k[..., 0, :] = margin
        seen = torch.ones((1, keys), dtype=torch.bool)
        found.append(float(attend(operator, q, k, k, mask=seen, numbers=values).weights[0, 0, 0, 0]))
    assert found == pytest.approx(expected, abs=0.006)
    assert (found[1] > found[0]) == (margin > 1)


def test_the_gate_never_promotes() -> None:
    q, k, _ = random_qkv(principled(gate_width=4))
    gate = Suppress(width=4)
    suppression = gate.suppression(q[..., -4:], k[..., -4:], strength=torch.tensor(0.0))
    assert (suppression >= 0).all()
    indifferent = gate.suppression(torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 1, 4), strength=torch.tensor(0.0))
    assert indifferent.item() == pytest.approx(math.log(2) ** 2, rel=1e-6)


def test_the_gradient_of_the_threshold_is_minus_that_of_all_logits() -> None:
    q, k, v = random_qkv(GROUND)
    gamma = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    z = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).requires_grad_()
    weights = Ground().weights(z, causal(13, 13), plain, threshold=gamma)
    output = GroundValue().output(weights, v, ground_value=torch.full((8,), 0.7, dtype=torch.float64))
    d_gamma, d_z = torch.autograd.grad(output.square().sum(), (gamma, z))
    torch.testing.assert_close(d_gamma, -d_z.sum(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("per", ["layer", "head", "query"])
def test_gradients_are_alive_at_the_default_start(per: str) -> None:
    operator = principled(per, gate_width=4)
    q, k, v = random_qkv(operator)
    values = {
        name: torch.full((1, 2, 1, 8 if "value" in name else 1), number.init, dtype=torch.float64).requires_grad_()
        for name, number in operator.numbers().items()
    }
    attend(operator, q, k, v, numbers=values).output.square().sum().backward()
    for name, value in values.items():
        assert value.grad.abs().min() > 0, name
