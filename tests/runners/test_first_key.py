"""The first key beside others, against loops over plain numbers."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from runners.probes import FirstKey
from tests.runners.probe_fixtures import by_place, make_layer, make_model, probe_layer, probe_model
from variants import Operator, integral, principled


def ids(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(0))


def test_norms_and_cosines_of_the_first_key() -> None:
    layer = make_layer(torch.ones(2, 2, 4, 4))
    layer.worked.heads.q[0, 0, 3] = 0
    records, heads = probe_layer(FirstKey(), layer), layer.worked.heads
    for head in range(2):
        k, v, q = (x[:, head].numpy() for x in (heads.k, heads.v, heads.q))
        for name, x in (("key", k), ("value", v)):
            norms = np.sqrt((x**2).sum(-1))
            assert records[f"first_{name}_norm", 1, head] == pytest.approx(norms[:, 0].mean())
            assert records[f"other_{name}_norm", 1, head] == pytest.approx(norms[:, 1:].mean())
        first, others = [], []
        for b in range(2):
            for i in range(1, 4):
                for j in range(i + 1):
                    size = np.linalg.norm(q[b, i]) * np.linalg.norm(k[b, j])
                    (others if j else first).append(q[b, i] @ k[b, j] / size if size else 0.0)
        assert records["first_qk_cosine", 1, head] == pytest.approx(np.mean(first))
        assert records["other_qk_cosine", 1, head] == pytest.approx(np.mean(others))


def test_the_first_key_is_looked_at_without_the_gate_and_without_padding() -> None:
    operator = principled("head", gate_width=2)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    mask[1, :, 2:] = False
    layer = make_layer(torch.ones(2, 2, 4, 4), mask, operator)
    heads = layer.worked.heads
    wide = torch.full((2, 2, 4, 2), 7.0, dtype=torch.float64)
    gated = heads._replace(q=torch.cat((heads.q, wide), -1), k=torch.cat((heads.k, wide), -1))
    gated.k[1, :, 2:] = gated.v[1, :, 2:] = 99.0
    records = probe_layer(FirstKey(), layer._replace(worked=layer.worked._replace(heads=gated)))
    places = [(0, 1), (0, 2), (0, 3), (1, 1)]
    for head in range(2):
        for name, x in (("key", heads.k), ("value", heads.v)):
            expected = np.mean([np.linalg.norm(x[b, head, j]) for b, j in places])
            assert records[f"other_{name}_norm", 1, head] == pytest.approx(expected)
        q, k = heads.q[:, head].numpy(), heads.k[:, head].numpy()
        cosines = [q[b, i] @ k[b, 0] / np.linalg.norm(q[b, i]) / np.linalg.norm(k[b, 0]) for b, i in places]
        assert records["first_qk_cosine", 1, head] == pytest.approx(np.mean(cosines))


def features(kind: str, x: np.ndarray, place: int, length: int) -> np.ndarray:
    """Return the features of a product at a place; cosFormer has twice as many, by cos(a - b)."""
    positive = np.maximum(x, 0)
    if kind == "cosformer":
        turn = math.pi * place / (2 * length)
        return np.concatenate((positive * math.cos(turn), positive * math.sin(turn)))
    return {"dot": x, "relu": positive, "linear_elu": np.where(x > 0, x + 1, np.exp(x))}[kind]


@pytest.mark.parametrize("signals", [1, 2, 4])
@pytest.mark.parametrize("kind", ["dot", "relu", "linear_elu", "cosformer"])
def test_the_cosine_is_that_of_what_the_product_multiplies(kind: str, signals: int) -> None:
    operator = integral(signals) if signals > 1 else Operator()
    operator = operator.changed(product={"kind": kind})
    layer = make_layer(torch.ones(2, 2, 5, 5), None, operator)
    made = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, 2, 5, 8, generator=made, dtype=torch.float64) for _ in range(2))
    layer = layer._replace(worked=layer.worked._replace(heads=layer.worked.heads._replace(q=q, k=k)))
    records = probe_layer(FirstKey(), layer)
    for head in range(2):
        first, others = [], []
        for b, i in ((b, i) for b in range(2) for i in range(1, 5)):
            for j in range(i + 1):
                for one, other in zip(np.split(q[b, head, i], signals), np.split(k[b, head, j], signals), strict=True):
                    u, w = features(kind, np.asarray(one), i, 5), features(kind, np.asarray(other), j, 5)
                    size = np.linalg.norm(u) * np.linalg.norm(w)
                    (others if j else first).append(u @ w / size if size else 0.0)
        assert records["first_qk_cosine", 1, head] == pytest.approx(np.mean(first))
        assert records["other_qk_cosine", 1, head] == pytest.approx(np.mean(others))


def test_a_learned_kernel_has_the_cosine_of_its_features() -> None:
    model = make_model(Operator().changed(product={"kind": "mlp"}))
    records = by_place(probe_model(model, ids(2, 6), FirstKey()))
    worked = next(model.trace_layers(ids(2, 6))).worked
    inner, outer = (worked.numbers[f"product.{name}"].double() for name in ("inner", "outer"))
    q, k = (((x @ inner.mT).relu() @ outer.mT)[:, 1] for x in (worked.heads.q, worked.heads.k))
    cosines = torch.nn.functional.cosine_similarity(q, k[:, :1], dim=-1)[:, 1:]
    assert records["first_qk_cosine", 0, 1] == pytest.approx(cosines.mean().item())
