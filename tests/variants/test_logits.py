"""Stages before the score: visible keys and their logits. Facts that no general law knows."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from grid import SpecError
from variants import LogCount, Number, Operator, Scalars, Suppress, Transformer, Vector, attend, causal, gpt2, softmax
from variants.number import HeadShape, KeyVector
from variants.operator import distances
from variants.papers.attention_sinks import (
    fixed_value_bias,
    key_bias,
    key_value_bias,
    mlp_kernel,
    prefix_lm,
    sliding_window,
)
from variants.papers.beyond import fox, qk_norm, selective, ssmax
from variants.papers.signed_averaging import temperature
from variants.stages.extras.key_bias import KeyBias
from variants.stages.extras.key_value_bias import KeyValueBias
from variants.stages.forgetting.forget_gate import ForgetGate
from variants.stages.forgetting.selective import Selective
from variants.stages.margins.ssmax import SSMax
from variants.stages.preparations.rms_norm import RMSNorm
from variants.stages.transforms.softcap import Softcap
from variants.stages.transforms.temperature import Temperature
from variants.stages.visible.prefix import Prefix
from variants.stages.visible.window import Window

EXACT = {"rtol": 1e-12, "atol": 1e-14}
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


def make_mask(z: Tensor) -> Tensor:
    return z.masked_fill(~causal(*z.shape[-2:]), -math.inf)


# which keys are seen


@pytest.mark.parametrize("size", [1, 2, 5, 13, 20])
def test_a_window_sees_so_many_keys(size: int) -> None:
    seen = Window(size=size).restrict(causal(T, T), distances(T, T))
    assert seen.sum(-1).tolist() == [min(i + 1, size) for i in range(T)]
    assert seen.diagonal().all()
    encoder = Window(size=size).restrict(torch.ones(T, T, dtype=torch.bool), distances(T, T))
    assert encoder.sum(-1).tolist() == [min(i, size - 1) + 1 + min(T - 1 - i, size - 1) for i in range(T)]


def test_a_window_is_softmax_over_its_keys() -> None:
    q, k, v = random_heads()
    found = attend(sliding_window(4), q, k, v).output[:, :, 9:10]
    expected = attend(softmax(), q[:, :, 9:10], k[:, :, 6:10], v[:, :, 6:10]).output
    torch.testing.assert_close(found, expected, **EXACT)


@pytest.mark.parametrize("length", [1, 3, 13, 20])
def test_a_prefix_is_seen_by_every_query(length: int) -> None:
    seen = Prefix(length=length).restrict(causal(T, T), distances(T, T))
    assert seen.sum(-1).tolist() == [max(i + 1, min(length, T)) for i in range(T)]
    assert (Prefix(length=length).breaks == {}) == (length == 1)


def test_a_prefix_shows_no_padding_and_changes_no_encoder() -> None:
    padded = torch.ones(T, T, dtype=torch.bool)
    padded[:, 2], padded[5] = False, False
    prefix = Prefix(length=7)
    assert (prefix.restrict(padded, distances(T, T)) == padded).all()
    seen = prefix.restrict(padded & causal(T, T), distances(T, T))
    assert not seen[:, 2].any()
    assert not seen[5].any()
    assert seen[0].tolist() == [j < 7 and j != 2 for j in range(T)]


def test_after_the_prefix_a_prefix_model_is_causal() -> None:
    q, k, v = random_heads()
    found, expected = attend(prefix_lm(5), q, k, v).output, attend(softmax(), q, k, v).output
    assert (found[:, :, 4:] == expected[:, :, 4:]).all()
    assert not torch.isclose(found[:, :, :4], expected[:, :, :4]).all(-1).any()


# preparation


def test_normalised_queries_and_keys_have_no_length() -> None:
    q, k, v = random_heads()
    numbers = {"preparation.query_gain": draw(1, 1, 1, D), "preparation.key_gain": draw(1, 1, 1, D, seed=8)}
    operator = qk_norm().changed(preparation=RMSNorm(eps=1e-30))
    found = attend(operator, q, k, v, numbers=numbers).output
    lengths = draw(2, 2, T, 1).abs() + 0.1
    torch.testing.assert_close(attend(operator, q * lengths, k / lengths, v, numbers=numbers).output, found, **EXACT)
    gains = numbers["preparation.query_gain"] * numbers["preparation.key_gain"]
    z = D * (F.normalize(q, dim=-1) * gains) @ F.normalize(k, dim=-1).transpose(-2, -1) / math.sqrt(D)
    torch.testing.assert_close(found, make_mask(z).softmax(-1) @ v, **EXACT)


def test_normalising_to_length_1_is_a_temperature_away() -> None:
    """cos(q, k) times g is the RMSNorm of gains 1 at tau = sqrt(d) / g."""
    q, k, v = random_heads()
    one = torch.ones(1, 1, 1, D, dtype=torch.float64)
    numbers = {
        "preparation.query_gain": one,
        "preparation.key_gain": one,
        "transform.tau": constant(math.sqrt(D) / 10),
    }
    found = attend(Operator(preparation=RMSNorm(eps=1e-30), transform=Temperature()), q, k, v, numbers=numbers).output
    z = 10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
    torch.testing.assert_close(found, make_mask(z).softmax(-1) @ v, **EXACT)


def test_a_query_of_zeros_is_left_at_zero() -> None:
    q = torch.zeros(1, 1, 1, D, requires_grad=True)
    found, _ = RMSNorm().prepare(q, q, query_gain=torch.ones(D), key_gain=torch.ones(D))
    found.sum().backward()
    assert (found == 0).all()
    assert q.grad is not None
    assert q.grad.isfinite().all()


# a learned key


def test_a_key_bias_of_zero_is_off_by_one() -> None:
    q, k, v = random_heads()
    found = attend(key_bias(), q, k, v, numbers={"extra.learned_key": torch.zeros(1, 1, 1, D)})
    e = make_mask(q @ k.transpose(-2, -1) / math.sqrt(D)).exp()
    torch.testing.assert_close(found.output, e @ v / (1 + e.sum(-1, keepdim=True)), **EXACT)
    assert found.extra is not None
    torch.testing.assert_close(found.extra, 1 / (1 + e.sum(-1, keepdim=True)), **EXACT)


def test_a_key_value_bias_mixes_softmax_with_its_value() -> None:
    q, k, v = random_heads()
    key, value = draw(1, 2, 1, D), draw(1, 2, 1, D, seed=8)
    numbers = {"extra.learned_key": key, "extra.learned_value": value}
    found = attend(key_value_bias(), q, k, v, numbers=numbers).output
    z = make_mask(q @ k.transpose(-2, -1) / math.sqrt(D))
    w = (z.logsumexp(-1, keepdim=True) - (q * key).sum(-1, keepdim=True) / math.sqrt(D)).sigmoid()
    torch.testing.assert_close(found, w * attend(softmax(), q, k, v).output + (1 - w) * value, **EXACT)


def test_a_learned_key_is_not_counted_gated_or_forgotten() -> None:
    q, k, v = random_heads(width=D + 4)
    v, key = v[..., :D], draw(1, 1, 1, D)
    rest = {
        "margin.amplification": constant(1.0),
        "gate.strength": constant(2.0),
        "forgetting.gate": constant(0.7),
    }
    operator = Operator(extra=KeyBias(), margin=LogCount(), gate=Suppress(width=4), forgetting=fox("head").forgetting)
    found = attend(operator, q, k, v, numbers=rest | {"extra.learned_key": key})
    alone = attend(operator.changed(extra={"kind": "none"}), q, k, v, numbers=rest)
    assert found.extra is not None
    c = 1 + F.softplus(constant(1.0)) * torch.arange(1, T + 1, dtype=torch.float64).log()[:, None]
    s = c * (q[..., :D] * key).sum(-1, keepdim=True) / math.sqrt(D)
    z = q[..., :D] @ k[..., :D].transpose(-2, -1) / math.sqrt(D) + math.log(0.7) * distances(T, T).double()
    g = q[..., D:] @ k[..., D:].transpose(-2, -1) / 2
    a = make_mask(c * z - F.softplus(constant(2.0)) * F.softplus(-g))
    torch.testing.assert_close(found.extra, (s - torch.logaddexp(s, a.logsumexp(-1, keepdim=True))).exp(), **EXACT)
    torch.testing.assert_close(found.weights, alone.weights * (1 - found.extra), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("along", "expected"), [("first", [5.0] + [0.0] * 7), ("all", [5.0] * 8)])
def test_a_fixed_value_lies_along_its_direction(along: str, expected: list[float]) -> None:
    operator = fixed_value_bias(5.0, along=along)  # type: ignore[arg-type]
    number = operator.numbers()["extra.learned_value"]
    assert not number.trained
    assert number.fixed_value(HeadShape(2, D, D, D, D, 16), 0).flatten().tolist() == expected


# transforms and margins


def test_a_temperature_is_another_query_projection() -> None:
    q, k, v = random_heads()
    found = attend(temperature(5.0), q, k, v).output
    torch.testing.assert_close(found, attend(softmax(), q / 5, k, v).output, **EXACT)


def test_a_soft_cap_bounds_and_leaves_small_logits_alone() -> None:
    z = torch.linspace(-1e4, 1e4, 101, dtype=torch.float64)
    assert Softcap().transform(z, cap=constant(5.0)).abs().max() <= 5
    small = torch.linspace(-0.1, 0.1, 101, dtype=torch.float64)
    error = (Softcap().transform(small, cap=constant(5.0)) - small).abs()
    assert (error <= small.abs() ** 3 / (3 * 25)).all()


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


@pytest.mark.parametrize("f", [1.0, 0.9, 0.1])
def test_a_constant_forget_gate_is_a_linear_decay(f: float) -> None:
    q, k, v = random_heads()
    found = attend(fox("head"), q, k, v, numbers={"forgetting.gate": constant(f)}).output
    z = q @ k.transpose(-2, -1) / math.sqrt(D) + math.log(f) * distances(T, T).double()
    torch.testing.assert_close(found, make_mask(z).softmax(-1) @ v, **EXACT)


def test_a_hidden_token_forgets_nothing() -> None:
    """It is as if the token were not there: its gate leaves no trace."""
    q, k, v = random_heads()
    gate = draw(2, 2, T, 1).sigmoid()
    mask = causal(T, T).clone()
    mask[:, 4] = False
    found = attend(fox(), q, k, v, mask=mask, numbers={"forgetting.gate": gate}).output
    left = [t for t in range(T) if t != 4]
    expected = attend(fox(), *(x[:, :, left] for x in (q, k, v)), numbers={"forgetting.gate": gate[:, :, left]}).output
    torch.testing.assert_close(found[:, :, left], expected, **EXACT)


def test_an_encoder_forgets_backwards_only() -> None:
    gate, z = draw(1, 1, T, 1).sigmoid(), torch.zeros(1, 1, T, T, dtype=torch.float64)
    encoder = ForgetGate().lowering(z, torch.ones(T, T, dtype=torch.bool), gate=gate)
    assert (encoder == ForgetGate().lowering(z, causal(T, T), gate=gate).tril()).all()


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


def test_selective_attention_by_hand() -> None:
    first = torch.tensor([[1.0, 0, 0, 0], [2, 3, 0, 0], [-1, 4, 5, 0], [1, 1, 1, 1]])
    z = torch.stack((first, torch.full((4, 4), 9.0).tril()))[None]
    found = Selective().lowering(z, causal(4, 4)).expand(1, 2, 4, 4)
    expected = torch.tensor([[0.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 4, 0, 0]])
    assert (found == expected).all()  # neither key 0, nor a token by itself, nor by a negative logit


def test_a_query_hidden_from_itself_selects_nothing() -> None:
    """Padding: no query sees its key, and what its query row attends to is lowered for nobody."""
    q, k, v = random_heads()
    mask = causal(T, T).clone()
    mask[:, 4] = False
    left = [t for t in range(T) if t != 4]
    expected = attend(selective(), *(x[:, :, left] for x in (q, k, v))).output
    for shape in ((T, T), (2, 1, T, T), (2, 2, T, T)):
        found = attend(selective(), q, k, v, mask=mask.expand(shape)).output
        torch.testing.assert_close(found[:, :, left], expected, **EXACT)


def test_selective_attention_goes_by_the_first_head() -> None:
    q, k, v = random_heads()
    found = attend(selective(), q, k, v).output
    swapped = attend(selective(), *(x.flip(1) for x in (q, k, v))).output.flip(1)
    assert (found - swapped).abs().max() > 0.1
    assert (found[:, :, :2] == attend(softmax(), q, k, v).output[:, :, :2]).all()
    assert selective().breaks.keys() == {"heads"}


# parameters added to a model


@pytest.mark.parametrize(
    ("operator", "added"),
    [
        (qk_norm(), 2 * D),
        (key_bias(), 2 * D),
        (key_bias(shared=True), D),
        (key_value_bias(), 2 * 2 * D),
        (key_value_bias(shared=True), 2 * D),
        (fixed_value_bias(), 2 * D),
        (mlp_kernel(), 2 * D * D),
        (ssmax(), 2),
        (fox(), 16 * 2 + 2),
        (fox("head"), 2),
        (selective(), 0),
        (temperature(), 0),
    ],
    ids=lambda each: each.label if isinstance(each, Operator) else "",
)
def test_parameters_per_layer(operator: Operator, added: int) -> None:
    """In 3 layers of 2 heads of 8 channels."""
    model = Transformer(gpt2(layers=3, heads=2, width=16), [operator] * 3, inputs=Scalars(), seed=0)
    assert model.operator_parameters() == 3 * added


def test_a_learned_key_starts_near_zero_and_differs_by_seed() -> None:
    def key(seed: int) -> Tensor:
        model = Transformer(gpt2(layers=1, heads=8, width=256), [key_bias()], inputs=Scalars(), seed=seed)
        return dict(model.named_parameters())["layers.0.attention.numbers.table.extra_learned_key"].detach()

    assert key(0).shape == (1, 8, 1, 32)
    assert key(0).std().item() == pytest.approx(0.02, rel=0.2)  # 256 draws: within 4.5 standard errors
    assert not torch.equal(key(0), key(1))


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


def test_selective_attention_needs_all_earlier_queries() -> None:
    q, k, v = random_heads()
    with pytest.raises(SpecError, match="needs as many as keys; got 1 for 13"):
        attend(selective(), q[:, :, -1:], k, v)
