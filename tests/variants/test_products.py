"""Products that are not the dot product: features, their recurrences, and cosFormer's horizon."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from grid import SpecError
from variants import attend, softmax
from variants.laws.inputs import random_inputs
from variants.operator import distances
from variants.papers.attention_sinks import linear_elu
from variants.papers.signed_averaging import cosformer
from variants.stages.products.cosformer import CosFormer
from variants.stages.products.linear_elu import LinearELU
from variants.stages.products.mlp import MLP
from variants.stages.products.relu import ReluFeatures

EXACT = {"rtol": 1e-12, "atol": 1e-14}
T, D = 13, 8


def random_heads() -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [2, 2, T, D], float64."""
    q, k, v, _ = random_inputs(softmax(), length=T)
    return q, k, v


def draw(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def running(features: Callable[[Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """sum_j phi(q_i) . phi(k_j) v_j from one state that is updated token by token."""
    state, rows = torch.zeros(2, 2, features(k).shape[-1], v.shape[-1], dtype=v.dtype), []
    for t in range(q.shape[-2]):
        state = state + features(k)[:, :, t, :, None] * v[:, :, t, None, :]
        rows.append((features(q)[:, :, t, None, :] @ state)[..., 0, :])
    return torch.stack(rows, 2)


MLP_NUMBERS = {"inner": draw(1, 1, D, D), "outer": draw(1, 1, D, D, seed=8)}


@pytest.mark.parametrize(
    ("product", "numbers", "phi"),
    [
        pytest.param(LinearELU(), {}, lambda x: torch.where(x > 0, x + 1, x.exp()), id="linear-elu"),
        pytest.param(ReluFeatures(), {}, lambda x: x.clamp(min=0), id="relu"),
        pytest.param(
            MLP(),
            MLP_NUMBERS,
            lambda x: torch.einsum(
                "oi,bhti->bhto",
                MLP_NUMBERS["outer"][0, 0],
                torch.einsum("oi,bhti->bhto", MLP_NUMBERS["inner"][0, 0], x).clamp(min=0),
            ),
            id="mlp",
        ),
    ],
)
def test_products_of_features_are_a_recurrence(
    product: LinearELU | ReluFeatures | MLP, numbers: dict[str, Tensor], phi: Callable[[Tensor], Tensor]
) -> None:
    q, k, v = random_heads()
    z = product.logits(q, k, distances(T, T), **numbers)
    torch.testing.assert_close(z.tril() @ v, running(phi, q, k, v) / math.sqrt(D), rtol=1e-11, atol=1e-12)
    assert (z >= 0).all() or not product.nonnegative


def test_cosformer_is_a_recurrence_over_twice_the_features() -> None:
    q, k, v = random_heads()
    angle = math.pi / 2 * torch.arange(T, dtype=torch.float64)[:, None] / 20

    def phi(x: Tensor) -> Tensor:
        return torch.cat((x.relu() * angle.cos(), x.relu() * angle.sin()), -1)

    z = CosFormer(length=20).logits(q, k, distances(T, T))
    torch.testing.assert_close(z.tril() @ v, running(phi, q, k, v), rtol=1e-11, atol=1e-12)


def test_a_distant_horizon_leaves_relu_features() -> None:
    q, k, _ = random_heads()
    m = 10**6
    found = CosFormer(length=m).logits(q, k, distances(T, T))
    nearly = (math.pi * T / (2 * m)) ** 2 / 2  # 1 - cos x <= x^2 / 2
    torch.testing.assert_close(
        found, ReluFeatures().logits(q, k, distances(T, T)) * math.sqrt(D), rtol=nearly, atol=1e-14
    )


def test_cosformer_of_the_released_code_is_another_operator_at_every_length() -> None:
    q, k, _ = random_heads()
    free, fixed = CosFormer(), CosFormer(length=T)
    assert (free.logits(q, k, distances(T, T)) == fixed.logits(q, k, distances(T, T))).all()
    short = q[:, :, :7], k[:, :, :7], distances(7, 7)
    whole = fixed.logits(q, k, distances(T, T))[..., :7, :7]
    torch.testing.assert_close(fixed.logits(*short), whole, **EXACT)
    assert (free.logits(*short) - whole).abs().max() > 0.1
    assert free.breaks.keys() == {"prefix"}
    assert fixed.breaks == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_its_horizon_a_cosformer_logit_is_not_negative(dtype: torch.dtype) -> None:
    x = torch.ones(1, 1, 8, D, dtype=dtype)
    assert (CosFormer(length=7).logits(x, x, distances(8, 8)) >= 0).all()


def test_normalised_features_need_no_scale() -> None:
    q, k, v = random_heads()
    found = attend(linear_elu(), q, k, v).output
    z = ((F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-2, -1)).tril()
    torch.testing.assert_close(found, z @ v / z.sum(-1, keepdim=True), **EXACT)


def test_a_query_without_a_positive_channel_gets_nothing_from_cosformer() -> None:
    q, k, v = random_heads()
    q[:, :, 5] = -q[:, :, 5].abs()
    q.requires_grad_()
    output = attend(cosformer(), q, k, v).output
    output.square().sum().backward()
    assert (output[:, :, 5] == 0).all()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_a_sequence_beyond_the_horizon_is_refused() -> None:
    q, k, _ = random_heads()
    CosFormer(length=12).logits(q, k, distances(T, T))
    with pytest.raises(SpecError, match="got a sequence of 13, raise length to 12 or more"):
        CosFormer(length=11).logits(q, k, distances(T, T))


def test_a_horizon_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        CosFormer(length=0)
