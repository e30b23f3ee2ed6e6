"""Principled Attention: the numerics that are easy to get wrong, and the forms that the equation may be written in."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.variants import Ground, GroundValue, LogCount, Operator, attend, causal, principled, softmax
from ablate.variants.papers.principled import principled_gate, principled_ground, principled_margin

GATE = 4


def random_heads(*, gate: int = 0, length: int = 13, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k [2, 2, T, 8 + gate], v [2, 2, T, 8], float64."""
    made = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn((2, 2, length, width), generator=made, dtype=torch.float64) for width in (8 + gate, 8 + gate, 8)
    )
    return q, k, v


def numbers(alpha: float = -5.0, gamma: float = 0.0, v0: float = 0.0) -> dict[str, Tensor]:
    named = {"margin.amplification": alpha, "normaliser.threshold": gamma, "readout.ground_value": v0}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in named.items()}


def only(values: dict[str, Tensor], operator: Operator) -> dict[str, Tensor]:
    return {name: values[name] for name in operator.numbers()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_key_at_the_threshold_counts_as_relevant_whatever_the_margin(dtype: torch.dtype) -> None:
    """All logits equal gamma, so nothing is left to the ground state and gradients are those of softmax."""
    operator = Operator(margin=LogCount(), normaliser=Ground(), readout=GroundValue())
    z = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=dtype)
    q = (math.sqrt(8) * F.pad(z[:, None, None, None], (0, 7))).repeat(1, 1, 13, 1).requires_grad_()
    k = F.pad(torch.ones(200, 1, 13, 1, dtype=dtype), (0, 7))
    v = random_heads()[2][:1, :1].to(dtype).expand(200, -1, -1, -1)
    values = only({name: value.to(dtype) for name, value in numbers(alpha=0.3).items()}, operator)
    values["normaliser.threshold"] = ((q.detach() * (1 / math.sqrt(8))) @ k.transpose(-2, -1))[..., :1]
    found = attend(operator, q, k, v, numbers=values)
    assert found.ground is not None
    assert (found.ground == 0).all()
    seen = causal(13, 13)
    mean = (seen.to(dtype) / seen.sum(-1, keepdim=True)) @ v
    torch.testing.assert_close(found.output, mean)
    (slope,) = torch.autograd.grad(found.output.square().sum(), q)
    assert slope.abs().max() < 1e-5  # equal keys: moving the query moves all logits alike


def test_a_far_threshold_costs_no_bits_of_the_logit() -> None:
    operator = Operator(margin=LogCount(), normaliser=Ground())
    q, k, v = (x.float() for x in random_heads())
    values = {"margin.amplification": torch.tensor(-200.0), "normaliser.threshold": torch.tensor(-1e4)}
    found = attend(operator, q, k, v, numbers=values).output
    torch.testing.assert_close(found, attend(softmax(), q, k, v).output, rtol=2e-6, atol=2e-7)


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


@pytest.mark.parametrize("per", ["constant", "layer", "head", "query"])
@pytest.mark.parametrize("dims", ["add", "split"])
def test_the_whole_is_its_components(per: Any, dims: Any) -> None:
    whole, plain = principled(per, gate_width=GATE, gate_dims=dims), Operator()
    changed = []
    for each in (principled_margin(per), principled_gate(per, width=GATE, dims=dims), principled_ground(per)):
        changed.append({stage for stage, choice in each.stages().items() if choice != getattr(plain, stage)})
        assert all(getattr(whole, stage) == getattr(each, stage) for stage in changed[-1])
        assert {number.label for number in each.numbers().values()} <= {per, "head"}
    assert changed == [{"margin"}, {"gate"}, {"normaliser", "readout"}]
    rest = whole.stages().keys() - set().union(*changed)
    assert all(getattr(whole, stage) == getattr(plain, stage) for stage in rest)
