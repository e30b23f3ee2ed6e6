"""Probes of attention weights, against closed forms and against loops over plain floats."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate import WeightSums
from ablate.training.probes import AttentionEntropy, EffectiveRank, FirstKey, FirstToken, SinkShare, TokenClasses
from ablate.training.probes.probe import ProbeInput
from ablate.training.tasks import Batch
from ablate.variants import Operator, Uniform, integral, principled
from ablate.variants.model.transformer import LayerTrace
from tests.runners.probe_fixtures import by_place, make_layer, make_model, probe_layer, probe_model

B, H, T = 4, 2, 6


def ids(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(0))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_mask() -> Tensor:
    """Causal, of two documents in the first sequence, with two tokens of padding at the end of the second, and nothing
    hidden in the others."""
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    documents = torch.tensor([0, 0, 0, 0, 1, 1])
    lengths = torch.tensor([T, T - 2, T, T])
    mask = causal & (torch.arange(T) < lengths[:, None])[:, None, :]
    mask[0] &= documents[:, None] == documents
    return mask[:, None]


def make_signed_layer() -> LayerTrace:
    """Signed weights that sum to anything, some rows of zeros; and a ground state and a learned key beside them."""
    mask = make_mask()
    weights = draw(B, H, T, T).masked_fill(~mask, 0)
    weights[1, 1, 2] = 0
    ground, extra = draw(B, H, T, 1, seed=1).abs(), draw(B, H, T, 1, seed=2)
    ground[1, 1, 2] = extra[1, 1, 2] = 0
    return make_layer(weights, mask, ground=ground, extra=extra)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("position", [0, 1, 2, 5])
def test_importance_and_sink_share_are_those_of_their_definition(position: int, raw: bool) -> None:
    """Over the queries from the position on, in the two sequences in which nothing is hidden."""
    layer, prefix, at = make_signed_layer(), "raw_" if raw else "", ("position", position)
    probe = SinkShare(eps=(0.1, 0.3), positions=(position,), of="weights" if raw else "shares")
    records, attended = probe_layer(probe, layer), layer.worked.attended
    weights, ground, extra = (x[2:].numpy() for x in (attended.weights, attended.ground, attended.extra))
    own = weights[..., position - 1 : position] if position else extra
    whole = abs(weights).sum(-1, keepdims=True) + abs(ground) + abs(extra)
    alpha = (own if raw else abs(own) / whole)[:, :, max(position - 1, 0) :, 0].mean(-1)
    for head in range(H):
        assert records.pop((f"{prefix}importance", 1, head, at)) == pytest.approx(alpha[:, head].mean())
        for eps in (0.1, 0.3):
            share = (alpha[:, head] > eps).mean()
            assert records.pop((f"{prefix}sink_share", 1, head, ("eps", eps), at)) == pytest.approx(share)
    assert records.pop((f"{prefix}sink_sequences", 1, None, at)) == 2
    assert not records


def test_short_documents_and_padding_have_no_trivial_sink() -> None:
    """Uniform attention looks like a sink where few queries see the first key: they are not asked."""
    inputs = ids(3, 64)
    starts = torch.stack([torch.arange(64) // size for size in (6, 18, 64)])
    visible = starts[:, :, None] == starts[:, None, :]
    at, eps = ("position", 1), ("eps", 0.3)
    for sinks in (0, 1):
        model = make_model(Operator(score=Uniform()), sink_tokens=sinks)
        records = by_place(probe_model(model, inputs, SinkShare(), visible=visible))
        assert records["sink_sequences", 0, None, at] == 1
        keys = 64 + sinks
        assert records["importance", 0, 0, at] == pytest.approx(sum(1 / i for i in range(1, keys + 1)) / keys)
        assert records["sink_share", 0, 0, eps, at] == 0
    none = by_place(probe_model(model, inputs[:2], SinkShare(), visible=visible[:2]))
    assert none == {("sink_sequences", layer, None, at): 0 for layer in (0, 1)}
    encoder = make_model(Operator(score=Uniform()), causal=False)
    visible = torch.ones(3, 8, 8, dtype=torch.bool)
    visible[0, :, 6:] = False
    visible[1, :4, 4:] = visible[1, 4:, :4] = False
    records = by_place(probe_model(encoder, ids(3, 8), SinkShare(positions=(1, 5)), visible=visible))
    assert records["sink_sequences", 0, None, ("position", 5)] == 1
    assert records["importance", 0, 0, ("position", 5)] == pytest.approx(1 / 8)


def test_uniform_causal_attention_has_the_harmonic_importance_and_logarithmic_entropies() -> None:
    probes = SinkShare(eps=(0.05, 0.3)), AttentionEntropy(), FirstToken(by_query=True), WeightSums()
    model = make_model(Operator(score=Uniform()))
    records = by_place(probe_model(model, ids(2, 64), *probes))
    harmonic, at = sum(1 / i for i in range(1, 65)), ("position", 1)
    expected = {
        ("importance", at): harmonic / 64,
        ("sink_share", ("eps", 0.05), at): 1,
        ("sink_share", ("eps", 0.3), at): 0,
        ("entropy",): np.mean([math.log(i) for i in range(1, 65)]),
        ("entropy_last",): math.log(64),
        ("first_token_weight",): (harmonic - 1) / 63,
        ("first_token_negative",): 0,
        ("weight_sum",): 1,
        **{("first_token_weight", ("query", i)): 1 / i for i in range(2, 65)},
    }
    for layer, head in product((0, 1), (0, 1)):
        values = {(row[0], *row[3:]): value for row, value in records.items() if row[1:3] == (layer, head)}
        assert values == pytest.approx(expected)
    assert records["weight_sum_count", 0, None, ("sum", 1.0)] == 2 * 64
    short = by_place(probe_model(model, ids(2, 8), SinkShare()))
    assert short["importance", 0, 0, at] == pytest.approx(0.3397, abs=5e-5)
    assert short["sink_share", 0, 0, ("eps", 0.3), at] == 1  # lengths are not comparable


def test_the_effective_rank_is_the_exponential_of_the_entropy_of_singular_values() -> None:
    weights = draw(B, H, T, T)
    weights[2, 1] = 0
    weights[1, 0] = draw(T, 1, seed=4) @ draw(1, T, seed=5)
    mask = torch.ones(B, 1, T, T, dtype=torch.bool)
    mask[0, :, 4:, 4:] = False  # padding: its rows count as zeros
    records, ranks = probe_layer(EffectiveRank(), make_layer(weights, mask)), np.full((B, H), np.nan)
    for b, h in product(range(B), range(H)):
        shares = np.linalg.svd((weights[b, h, :4] if b == 0 else weights[b, h]).numpy(), compute_uv=False)
        if shares.sum():
            shares = shares[shares > 0] / shares.sum()
            ranks[b, h] = math.exp(-(shares * np.log(shares)).sum())
    assert [records["effective_rank", 1, h] for h in range(H)] == pytest.approx(np.nanmean(ranks, 0))
    medians = [records["effective_rank_median", 1, None, ("sequence", b + 1)] for b in range(B)]
    assert medians == pytest.approx(np.nanmedian(ranks, 1))
    assert ranks[1, 0] == pytest.approx(1)
    # in single precision 63 of 64 singular values would not be 0, and 1e-5 in all
    single = make_layer(torch.full((1, 1, 64, 64), 1 / 64), torch.ones(1, 1, 64, 64).bool())
    assert probe_layer(EffectiveRank(), single)["effective_rank", 1, 0] == pytest.approx(1, abs=1e-9)


def test_weight_sums_are_those_of_keys_and_their_bins_have_ends() -> None:
    weights = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    weights[0, :, 1, 0], weights[0, 0, 2, 0], weights[0, :, 3, 1] = -9.0, 1.02, 3.0
    beside = torch.ones(1, 2, 4, 1, dtype=torch.float64)
    records = probe_layer(WeightSums(bin=0.5, limit=2.5), make_layer(weights, ground=beside, extra=beside))
    assert records["weight_sum", 1, 0] == pytest.approx((0 - 9 + 1.02 + 3) / 4)
    counts = {place[1]: value for (name, _, _, *point), value in records.items() for place in point if "count" in name}
    assert counts == {-2.5: 1, 0.0: 1, 0.5: 1, 2.5: 1}
    assert records["weight_sum_median", 1, None] == pytest.approx(0.51 / 2)
    assert records["weight_sum_mean", 1, None] == pytest.approx((-9 + 0.51 + 3) / 4)
    with pytest.raises(ValidationError, match=r"bin=1.0 is not between .* limit=0.2"):
        WeightSums(bin=1, limit=0.2)


def entropy(sizes: Sequence[float]) -> float:
    return -sum(size / sum(sizes) * math.log(size / sum(sizes)) for size in sizes if size)


def test_entropies_are_what_loops_over_floats_say() -> None:
    layer = make_signed_layer()
    weights, mask = layer.worked.attended.weights.tolist(), make_mask()[:, 0]
    queries = [[i for i in range(T) if mask[b, i, i]] for b in range(B)]
    records, last = probe_layer(AttentionEntropy(), layer), np.zeros((B, H))
    for head in range(H):
        rows = [weights[b][head][i] for b in range(B) for i in queries[b]]
        everywhere = [entropy([abs(w) for w in row]) for row in rows if any(row)]
        for b in range(B):
            row = [weights[b][head][queries[b][-1]][j] for j in range(T) if mask[b, queries[b][-1], j]]
            last[b, head] = entropy([w - min(row) for w in row])
        assert records["entropy", 1, head] == pytest.approx(np.mean(everywhere))
        assert records["entropy_last", 1, head] == pytest.approx(last[:, head].mean())
    assert records["entropy_last_sd", 1, None] == pytest.approx(last.mean(1).std(ddof=1))
    alone = probe_layer(AttentionEntropy(), make_layer(torch.ones(1, 2, 4, 4).tril()))
    assert ("entropy_last_sd", 1, None) not in alone


def test_the_first_token_of_signed_weights() -> None:
    layer = make_signed_layer()
    weights, records = layer.worked.attended.weights, probe_layer(FirstToken(by_query=True), layer)
    lasts = [4, 4, 6, 6]  # the second document has another first token
    for head in range(H):
        given = torch.cat([weights[b, head, 1:last, 0] for b, last in enumerate(lasts)])
        assert records["first_token_weight", 1, head] == pytest.approx(given.mean().item())
        assert records["first_token_negative", 1, head] == pytest.approx((given < 0).double().mean().item())
        last = weights[2:, head, 5, 0].mean().item()
        assert records["first_token_weight", 1, head, ("query", 6)] == pytest.approx(last)


def test_classes_count_no_query_of_padding_and_weights_that_sum_to_nothing_have_no_shares() -> None:
    """Queries of padding look at digits alone; the second head's weights sum to 0, the third's to less."""
    text = torch.tensor([list(b"a1b2")])
    weights = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    weights[0, 0, :2, 0], weights[0, 0, 1, 1], weights[0, 0, 2:, 1] = 1.0, 1.0, 9.0
    weights[0, 1, 1] = torch.tensor([1.0, -1.0, 0.0, 0.0])
    weights[0, 2, 1] = torch.tensor([1.0, -3.0, 0.0, 0.0])
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[2:] = False
    seen = ProbeInput(None, None, Batch(text, text), 1, [])
    records = probe_layer(TokenClasses(by="bytes"), make_layer(weights, mask[None, None]), seen)
    assert {head for _, _, head in records} == {0}
    assert records["token_class.bytes.letter", 1, 0] == pytest.approx(2 / 3)
    assert records["token_class.bytes.digit", 1, 0] == pytest.approx(1 / 3)
    # a sink token of the model, which sees a letter, is no query; the two queries of the text see digits alone
    weights = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.5, 0.0, 0.5]], dtype=torch.float64)[None, None]
    seen = seen._replace(batch=Batch(text[:, :2], text[:, :2]))
    records = probe_layer(TokenClasses(by="bytes"), make_layer(weights, torch.ones(1, 1, 3, 3).bool()), seen)
    assert (records["token_class.bytes.letter", 1, 0], records["token_class.bytes.digit", 1, 0]) == (0, 1)


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
            assert records[f"first_{name}_norm", 1, head] == pytest.approx(x[:, head, 0].norm(dim=-1).mean().item())
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
    q[0, 0, 3] = 0  # no direction, so no cosine
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
