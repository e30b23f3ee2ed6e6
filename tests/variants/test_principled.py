"""Principled Attention: the numerics that are easy to get wrong, and the forms that the equation may be written in."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from variants import (
    Exponential,
    Ground,
    GroundValue,
    LogCount,
    Operator,
    Suppress,
    attend,
    causal,
    principled,
    softmax,
)
from variants.laws.oracle import attend_in_floats
from variants.papers.principled import principled_gate, principled_ground, principled_margin
from variants.stages.normalisers.sink import Sink

EXACT = {"rtol": 1e-12, "atol": 1e-14}
GATE = 4
GROUND = Operator(normaliser=Ground(), readout=GroundValue())


def random_heads(*, gate: int = 0, length: int = 13, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k [2, 2, T, 8 + gate], v [2, 2, T, 8], float64."""
    made = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn((2, 2, length, width), generator=made, dtype=torch.float64) for width in (8 + gate, 8 + gate, 8)
    )
    return q, k, v


def numbers(alpha: float = -5.0, beta: float = -5.0, gamma: float = 0.0, v0: float = 0.0) -> dict[str, Tensor]:
    named = {
        "margin.amplification": alpha,
        "gate.strength": beta,
        "normaliser.threshold": gamma,
        "readout.ground_value": v0,
    }
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in named.items()}


def only(values: dict[str, Tensor], operator: Operator) -> dict[str, Tensor]:
    return {name: values[name] for name in operator.numbers()}


def ground_weights(z: Tensor, mask: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the keys and of the ground state."""
    weights = Ground().weights(Exponential().scores(z, mask), threshold=threshold)
    assert weights.ground is not None
    return weights.keys, weights.ground


def margins(q: Tensor, k: Tensor, values: dict[str, Tensor]) -> Tensor:
    """u = a - gamma = c (s - gamma) - b, as the paper writes it; -inf where hidden."""
    alpha, beta, gamma = (values[name] for name in ("margin.amplification", "gate.strength", "normaliser.threshold"))
    s = q[..., :8] @ k[..., :8].transpose(-2, -1) / math.sqrt(8)
    g = q[..., 8:] @ k[..., 8:].transpose(-2, -1) / math.sqrt(GATE)
    count = torch.arange(1, q.shape[-2] + 1, dtype=q.dtype)[:, None]
    c = 1 + F.softplus(alpha) * count.log()
    u = c * (s - gamma) - F.softplus(beta) * F.softplus(-g)
    return u.masked_fill(~causal(q.shape[-2], q.shape[-2]), -math.inf)


def zero_threshold(u: Tensor, v: Tensor, v0: Tensor) -> Tensor:
    w = u.exp() / torch.where(u > -math.inf, u.exp().clamp(min=1), 0).sum(-1, keepdim=True)
    return w @ v + (1 - w.sum(-1, keepdim=True)) * v0


def clipped_logits(u: Tensor, v: Tensor, v0: Tensor) -> Tensor:
    p = torch.where(u > -math.inf, u.relu(), -math.inf).softmax(-1)
    r = torch.where(u > -math.inf, (-(-u).relu()).exp(), 0)
    return (p * r) @ v + (p * (1 - r)).sum(-1, keepdim=True) * v0


def two_sums(u: Tensor, v: Tensor, v0: Tensor) -> Tensor:
    clipped = torch.where(u > -math.inf, u.relu(), -math.inf)
    f = (u.logsumexp(-1, keepdim=True) - clipped.logsumexp(-1, keepdim=True)).exp()
    return f * (u.softmax(-1) @ v) + (1 - f) * v0


def shifted_values(u: Tensor, v: Tensor, v0: Tensor) -> Tensor:
    w = u.exp() / torch.where(u > -math.inf, u.exp().clamp(min=1), 0).sum(-1, keepdim=True)
    return v0 + w @ (v - v0)


@pytest.mark.parametrize("form", [zero_threshold, clipped_logits, two_sums, shifted_values])
def test_the_equation_has_equal_forms(form: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    q, k, v = random_heads(gate=GATE)
    values = numbers(alpha=-0.5, beta=0.7, gamma=0.3, v0=1.5)
    found = attend(principled(gate_width=GATE), q, k, v, numbers=values).output
    expected = form(margins(q, k, values), v, values["readout.ground_value"])
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_a_smooth_maximum_tends_to_it() -> None:
    """Z_tau = sum (e^(gamma / tau) + e^(a / tau))^tau is ours for tau -> 0; each key adds at most a factor 2^tau."""
    q, k, _ = random_heads()
    seen, gamma, tau = causal(13, 13), 0.3, 1e-4
    z = q @ k.transpose(-2, -1) / math.sqrt(8)
    keys, _ = ground_weights(z, seen, torch.tensor(gamma, dtype=torch.float64))
    each = torch.logaddexp(z / tau, torch.full_like(z, gamma / tau)) * tau
    smooth = z.masked_fill(~seen, -math.inf).exp() / each.exp().masked_fill(~seen, 0).sum(-1, keepdim=True)
    torch.testing.assert_close(keys, smooth, rtol=2**tau - 1, atol=0)


def test_at_temperature_1_the_smooth_maximum_is_a_sink() -> None:
    """Z_1 = sum e^a + K e^gamma: a sink of s = gamma + ln K, whose mass grows with the keys."""
    q, k, v = random_heads()
    gamma = 0.3
    count = torch.arange(1, 14, dtype=torch.float64).reshape(1, 1, 13, 1)
    sink = attend(Operator(normaliser=Sink()), q, k, v, numbers={"normaliser.logit": gamma + count.log()})
    seen, z = causal(13, 13), q @ k.transpose(-2, -1) / math.sqrt(8)
    total = (z.exp() + math.exp(gamma)).masked_fill(~seen, 0).sum(-1, keepdim=True)
    torch.testing.assert_close(sink.weights, z.exp().masked_fill(~seen, 0) / total, **EXACT)
    ours, ground = ground_weights(z, seen, torch.tensor(gamma, dtype=torch.float64))
    assert sink.ground is not None
    assert (ours > sink.weights)[..., seen].all()  # a smooth maximum is above the maximum
    assert (ground < sink.ground).all()


def test_far_below_threshold_it_is_softmax() -> None:
    q, k, v = random_heads(gate=GATE)
    values = numbers(alpha=-60, beta=-60, gamma=-40, v0=3.0)
    found = attend(principled(gate_width=GATE), q, k, v, numbers=values).output
    expected = attend(softmax(), q[..., :8], k[..., :8], v).output
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_far_above_threshold_it_rests_in_the_ground_value() -> None:
    attended = attend(GROUND, *random_heads(), numbers=only(numbers(gamma=60, v0=2.0), GROUND))
    torch.testing.assert_close(attended.output, torch.full_like(attended.output, 2.0), rtol=1e-9, atol=0)


def test_keys_that_all_clear_the_threshold_leave_nothing_to_the_ground() -> None:
    q, k, v = (x.abs() for x in random_heads())
    attended = attend(GROUND, q, k, v, numbers=only(numbers(gamma=-0.001), GROUND))
    assert attended.ground is not None
    assert (attended.ground == 0).all()
    torch.testing.assert_close(attended.output, attend(softmax(), q, k, v).output, **EXACT)


def test_hidden_keys_add_nothing_to_the_denominator() -> None:
    q, k, v = random_heads()
    first = attend(GROUND, q, k, v, numbers=only(numbers(gamma=0.5), GROUND))
    z = (q[:, :, :1] * k[:, :, :1]).sum(-1) / math.sqrt(8)
    torch.testing.assert_close(first.weights[:, :, 0, 0], (z[..., 0] - 0.5).exp().clamp(max=1), **EXACT)


def test_a_tie_with_the_threshold_counts_as_relevant() -> None:
    _, k, v = random_heads()
    zero = torch.zeros_like(k).requires_grad_()  # every logit is 0 = gamma
    ours = attend(GROUND, zero, k, v, numbers=only(numbers(), GROUND))
    (gradient,) = torch.autograd.grad(ours.output.square().sum(), zero)
    (expected,) = torch.autograd.grad(attend(softmax(), zero, k, v).output.square().sum(), zero)
    assert ours.ground is not None
    assert (ours.ground == 0).all()
    torch.testing.assert_close(gradient, expected, **EXACT)


def test_a_far_threshold_costs_no_bits_of_the_logit() -> None:
    operator = Operator(margin=LogCount(), normaliser=Ground())
    q, k, v = (x.float() for x in random_heads())
    values = {"margin.amplification": torch.tensor(-200.0), "normaliser.threshold": torch.tensor(-1e4)}
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
    for count in (1, 10, 100):
        z = torch.full((1, 1, 1, count), -50.0)
        z[..., 0] = 2.0
        keys, _ = ground_weights(z, torch.ones(1, count, dtype=torch.bool), torch.tensor(0.0))
        assert keys[..., 0].item() == pytest.approx(math.exp(2) / (math.exp(2) + count - 1), rel=1e-6)


@pytest.mark.parametrize(("margin", "expected"), [(0.9, (0.61, 0.49)), (1.1, (0.83, 0.88))])
def test_a_margin_over_one_survives_any_number_of_keys(margin: float, expected: tuple[float, float]) -> None:
    """With p = softplus(alpha) = 1, the weight of one relevant key tends to 1 exactly when p (s - gamma) > 1."""
    operator = Operator(margin=LogCount(), normaliser=Ground())
    values = only(numbers(alpha=math.log(math.expm1(1.0))), operator)
    found = []
    for keys in (100, 10_000):
        q = torch.ones((1, 1, 1, 1), dtype=torch.float64)
        k = torch.full((1, 1, keys, 1), -1e-9, dtype=torch.float64)  # just under the threshold
        k[..., 0, :] = margin
        seen = torch.ones((1, keys), dtype=torch.bool)
        found.append(float(attend(operator, q, k, k, mask=seen, numbers=values).weights[0, 0, 0, 0]))
    assert found == pytest.approx(expected, abs=0.005)
    assert (found[1] > found[0]) == (margin > 1)


@pytest.mark.parametrize("hidden", [2, 7])
def test_the_margin_counts_the_keys_that_are_seen(hidden: int) -> None:
    """K is the number of visible keys: hiding some is the same as their not being there."""
    operator = principled_margin()
    q, k, v = random_heads()
    values = only(numbers(alpha=1.0), operator)
    mask = causal(13, 13).clone()
    mask[:, :hidden] = False
    found = attend(operator, q, k, v, mask=mask, numbers=values).output[:, :, hidden:]
    expected = attend(operator, q[:, :, hidden:], k[:, :, hidden:], v[:, :, hidden:], numbers=values).output
    torch.testing.assert_close(found, expected, **EXACT)


def test_the_gate_never_promotes() -> None:
    q, k, _ = random_heads(gate=GATE)
    gate = Suppress(width=GATE)
    suppression = gate.suppression(q[..., 8:], k[..., 8:], strength=torch.tensor(0.0))
    assert (suppression >= 0).all()
    indifferent = gate.suppression(torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 1, 4), strength=torch.tensor(0.0))
    assert indifferent.item() == pytest.approx(math.log(2) ** 2, rel=1e-6)


def test_the_gradient_of_the_threshold_is_minus_that_of_all_logits() -> None:
    q, k, v = random_heads()
    gamma = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    z = (q @ k.transpose(-2, -1) / math.sqrt(8)).requires_grad_()
    keys, ground = ground_weights(z, causal(13, 13), gamma)
    output = keys @ v + ground * 0.7
    d_gamma, d_z = torch.autograd.grad(output.square().sum(), (gamma, z))
    torch.testing.assert_close(d_gamma, -d_z.sum(), rtol=1e-10, atol=1e-12)


def gradients(operator: Operator, values: dict[str, Tensor]) -> dict[str, Tensor]:
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    attend(operator, *random_heads(gate=operator.gate.channels), numbers=leaves).output.square().sum().backward()
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


@pytest.mark.parametrize("per", ["layer", "head", "query"])
def test_gradients_are_alive_at_the_default_start(per: str) -> None:
    operator = principled(per, gate_width=GATE)  # type: ignore[arg-type]
    values = {
        name: torch.full((1, 2, 1, 8 if "value" in name else 1), number.init, dtype=torch.float64)
        for name, number in operator.numbers().items()
    }
    found = gradients(operator, values)
    assert found.keys() == values.keys()
    assert all(gradient.abs().min() > 0 for gradient in found.values())


def test_a_start_that_is_softmax_exactly_is_dead() -> None:
    found = gradients(GROUND, only(numbers(gamma=-50), GROUND))
    assert found["normaliser.threshold"].abs() < 1e-12
    assert (found["readout.ground_value"] == 0).all()


@pytest.mark.parametrize("per", ["constant", "layer", "head", "query"])
@pytest.mark.parametrize("dims", ["add", "split"])
def test_the_whole_is_its_components(per: str, dims: str) -> None:
    whole = principled(per, gate_width=GATE, gate_dims=dims)  # type: ignore[arg-type]
    alone = (
        principled_margin(per),  # type: ignore[arg-type]
        principled_gate(per, width=GATE, dims=dims),  # type: ignore[arg-type]
        principled_ground(per),  # type: ignore[arg-type]
    )
    stages = [
        {stage for stage, choice in each.stages().items() if choice != getattr(Operator(), stage)} for each in alone
    ]
    assert stages == [{"margin"}, {"gate"}, {"normaliser", "readout"}]
    for each, changed in zip(alone, stages, strict=True):
        assert all(getattr(whole, stage) == getattr(each, stage) for stage in changed)
        assert {number.label for number in each.numbers().values()} <= {per, "head"}
    assert set().union(*stages) == {s for s, choice in whole.stages().items() if choice != getattr(Operator(), s)}


def test_the_ground_value_may_be_coarser_than_the_threshold() -> None:
    assert principled_ground("query").numbers()["readout.ground_value"].label == "head"
    assert principled_ground("head", ground_value="constant").numbers()["readout.ground_value"].label == "constant"


def test_the_mask_acts_after_the_maximum() -> None:
    """Equal to the oracle where most keys are hidden, which would each add e^gamma to the denominator."""
    q, k, v = random_heads(length=7)
    mask = torch.eye(7, dtype=torch.bool)
    values = {name: value.reshape(1, 1, 1, 1) for name, value in only(numbers(gamma=1.0, v0=0.5), GROUND).items()}
    values["readout.ground_value"] = values["readout.ground_value"].expand(1, 1, 1, 8)
    found = attend(GROUND, q, k, v, mask=mask, numbers=values).output
    own = {name: value[0] for name, value in values.items()}
    expected = attend_in_floats(GROUND, (q[0].tolist(), k[0].tolist(), v[0].tolist()), mask.tolist(), own)
    torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.float64), **EXACT)
