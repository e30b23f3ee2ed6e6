"""Facts about single stages and their operators that no general law knows."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from grid.errors import SpecError
from variants import (
    SSA,
    Exponential,
    Number,
    Operator,
    Scalars,
    Signals,
    Transformer,
    attend,
    causal,
    gpt2,
    llama2,
    softmax,
)
from variants.number import ByDepth, HeadShape
from variants.operator import distances
from variants.papers.affine_scaled import affine_scaled, learned_sink
from variants.papers.attention_sinks import fixed_value_bias
from variants.papers.beyond import fox, fox_decay_times, ssmax, ssmax_biased
from variants.papers.integral import differential, integral, integral_control, integral_weights
from variants.stages.forgetting.forget_gate import ForgetGate
from variants.stages.head_norms.rms import RMS
from variants.stages.margins.ssmax import SSMax
from variants.stages.merges.mean import MeanWeights
from variants.stages.preparations.rms_norm import RMSNorm
from variants.stages.products.cosformer import CosFormer
from variants.stages.scores.head_groups import HeadGroups

EXACT = {"rtol": 1e-12, "atol": 1e-14}
LENGTH, D = 13, 8


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def qkv(width: int = 8, length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, [2, 3, T, D]."""
    return draw(2, 3, length, width, seed=1), draw(2, 3, length, width, seed=2), draw(2, 3, length, width, seed=3)


def of(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value, dtype=torch.float64)


def holes(length: int = LENGTH) -> Tensor:
    """Causal, with hidden keys; every query sees at least one, and query 5 none."""
    hidden = torch.rand((length, length), generator=torch.Generator().manual_seed(4)) < 0.3
    mask = causal(length, length) & (~hidden | torch.eye(length, dtype=torch.bool))
    mask[5] = False
    return mask


def plain(q: Tensor, k: Tensor, *, scale: float) -> Tensor:
    """Causal softmax weights, computed here."""
    logits = (q @ k.transpose(-2, -1) * scale).masked_fill(~causal(q.shape[-2], k.shape[-2]), -torch.inf)
    return logits.softmax(-1)


class TestIntegral:
    @pytest.mark.parametrize("signals", [2, 3, 6])
    def test_the_mean_of_logits_is_one_product_at_a_smaller_scale(self, signals: int) -> None:
        q, k, v = qkv(width=12)
        slices = [plain_logits(q, k, s, 12 // signals) for s in range(signals)]
        by_signal = sum(slices) / signals
        weights = by_signal.masked_fill(~causal(LENGTH, LENGTH), -torch.inf).softmax(-1)
        found = attend(integral(signals), q, k, v).weights
        torch.testing.assert_close(found, weights, **EXACT)
        torch.testing.assert_close(found, plain(q, k, scale=(signals * 12) ** -0.5), **EXACT)
        torch.testing.assert_close(
            found,
            attend(integral_control(signals), q, k, v, numbers={"transform.tau": of(signals**0.5)}).weights,
            **EXACT,
        )

    @pytest.mark.parametrize("rotary", [False, True])
    def test_the_control_is_integral_in_every_backbone_unless_rotary_turns_each_signal(self, rotary: bool) -> None:
        size = {"layers": 1, "heads": 2, "width": 16}
        backbone = llama2(**size, feedforward_width=16) if rotary else gpt2(**size)
        x = draw(2, 9, 1).float()

        def predict(operator: Operator) -> Tensor:
            model = Transformer(backbone, [operator], inputs=Scalars(), seed=0)
            for name, parameter in model.named_parameters():
                if "qkv" in name:
                    parameter.data *= 30
            return model(x)

        control = predict(integral_control(2))
        if rotary:
            torch.testing.assert_close(predict(integral(2, rotary="before_split")), control, rtol=1e-5, atol=1e-6)
            assert not torch.allclose(predict(integral(2)), control, rtol=1e-3, atol=1e-4)
        else:
            torch.testing.assert_close(predict(integral(2)), control, rtol=1e-5, atol=1e-6)


def plain_logits(q: Tensor, k: Tensor, signal: int, width: int) -> Tensor:
    own = slice(signal * width, (signal + 1) * width)
    return q[..., own] @ k[..., own].transpose(-2, -1) / width**0.5


def differing(factor: float, *, start: float = 0.2, gain: Tensor | None = None) -> dict[str, Tensor]:
    """Differential's numbers for a layer whose lambda starts at `start`."""
    gain = torch.ones(1, 1, 1, 8, dtype=torch.float64) if gain is None else gain
    return {"merge.factor": of(factor), "head_norm.gain": gain, "head_norm.factor": of(1 - start)}


class TestDifferential:
    def test_it_is_two_maps_normed_and_scaled(self) -> None:
        q, k, v = qkv()
        gain = draw(1, 1, 1, 8, seed=5)
        found = attend(differential(), q, k, v, numbers=differing(0.4, start=0.3, gain=gain))
        first, second = (plain(q[..., s : s + 4], k[..., s : s + 4], scale=0.5) for s in (0, 4))
        mixed = (first - 0.4 * second) @ v
        torch.testing.assert_close(found.weights, first - 0.4 * second, **EXACT)
        torch.testing.assert_close(found.output, 0.7 * F.rms_norm(mixed, (8,), eps=1e-5) * gain, **EXACT)

    def test_two_heads_of_the_model_become_one_or_stay_two(self) -> None:
        for heads, joined, gain in (("halved", 1, 16), ("kept", 2, 8)):
            model = Transformer(
                gpt2(layers=1, heads=2, width=16), [differential(heads=heads)], inputs=Scalars(), seed=0
            )
            attention = next(
                module for module in model.modules() if hasattr(module, "numbers") and hasattr(module, "qkv")
            )
            assert attention.heads == joined
            assert attention.numbers.table["head_norm_gain"].shape == (1, 1, 1, gain)
            assert attention.numbers.table["merge_factor"].shape == (1, 1, 4, gain // 2)
            assert model(draw(2, 7, 1).float()).shape == (2, 7, 1)

    def test_an_odd_number_of_heads_is_refused_with_the_nearest(self) -> None:
        backbone = gpt2(layers=1, heads=7, width=56)
        with pytest.raises(ValueError, match="makes one head of 2 and needs heads divisible by 2; got 7, nearest is 6"):
            differential().check(heads=7, kv_heads=7, head_width=8, positions=backbone.positions)
        differential(heads="kept").check(heads=7, kv_heads=7, head_width=8, positions=backbone.positions)


@pytest.mark.parametrize("n", ["visible", "context"])
def test_a_row_of_affine_scaled_weights_sums_to_the_mean_or_to_its_share_of_the_context(n: str) -> None:
    alpha = torch.rand((2, 3, LENGTH, 1), generator=torch.Generator().manual_seed(6)).double()
    mean, mask = draw(1, 3, 1, 1).abs(), holes()
    numbers = {"rescale.scale": alpha, "rescale.mean": mean}
    weights = attend(affine_scaled(n=n), *qkv(), mask=mask, numbers=numbers).weights  # type: ignore[arg-type]
    share = 1.0 if n == "visible" else mask.sum(-1, keepdim=True).double() / LENGTH
    expected = (alpha + share * (mean - alpha))[..., 0]
    expected[..., 5] = 0  # sees nothing
    torch.testing.assert_close(weights.sum(-1), expected, **EXACT)
    assert (weights[..., ~mask] == 0).all()


def test_the_norm_gives_back_what_a_sink_takes() -> None:
    q, k, v = qkv()
    numbers = {"head_norm.gain": torch.ones(1, 1, 1, 8, dtype=torch.float64), "head_norm.factor": of(1.0)}
    normed, sunk = (
        attend(each.changed(head_norm=RMS(eps=1e-30)), q, k, v, numbers={**numbers, **own}).output
        for each, own in ((softmax(), {}), (learned_sink(), {"normaliser.logit": of(2.0)}))
    )
    torch.testing.assert_close(sunk, normed, **EXACT)
    assert any("sink" in trap for trap in RMS.traps)


def test_operators_of_equal_meaning_have_equal_keys() -> None:
    assert RMS(factor=ByDepth(init=1.0, deep=1.0, rate=0.7)) == RMS()
    assert differential(form="vectors").key != differential(form="scalar").key
    assert affine_scaled(n="visible").key != affine_scaled(n="context").key
    assert Operator(signals=Signals(count=2), merge=MeanWeights()).key == integral_weights(2).key


def test_a_query_of_zeros_is_left_at_zero() -> None:
    q = torch.zeros(1, 1, 1, D, requires_grad=True)
    found, _ = RMSNorm().prepare(q, q, query_gain=torch.ones(D), key_gain=torch.ones(D))
    found.sum().backward()
    assert (found == 0).all()
    assert q.grad is not None
    assert q.grad.isfinite().all()


@pytest.mark.parametrize(("along", "expected"), [("first", [5.0] + [0.0] * 7), ("all", [5.0] * 8)])
def test_a_fixed_value_lies_along_its_direction(along: str, expected: list[float]) -> None:
    operator = fixed_value_bias(5.0, along=along)  # type: ignore[arg-type]
    number = operator.numbers()["extra.learned_value"]
    assert not number.trained
    assert number.fixed_value(HeadShape(2, D, D, D, D, 16), 0).flatten().tolist() == expected


@pytest.mark.parametrize(("keys", "ours", "plain"), [(16, 0.963, 0.908), (256, 0.998, 0.368), (65536, 1.000, 0.002)])
def test_scalable_softmax_does_not_fade(keys: int, ours: float, plain: float) -> None:
    """Figure 1 of its paper: all logits -2 but one of 3, s = 0.43."""
    q, k = torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.full((1, 1, keys, 1), -2.0, dtype=torch.float64)
    k[..., -1, :] = 3
    found = attend(ssmax(), q, k, k, numbers={"margin.scale": of(0.43), "margin.bias": of(0.0)}).weights
    assert found.max().item() == pytest.approx(ours, abs=5e-4)
    assert attend(softmax(), q, k, k).weights.max().item() == pytest.approx(plain, abs=5e-4)


def test_the_start_of_scalable_softmax_is_softmax_on_average() -> None:
    counts = torch.arange(1, 1025, dtype=torch.float64)[:, None]
    factor = SSMax().factor(counts, scale=of(SSMax().scale.init), bias=of(0.0))
    assert factor.mean().item() == pytest.approx(1, abs=5e-3)
    assert (factor[..., 0, :] == 0).all()


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


def test_the_bias_of_scalable_softmax_is_added_to_its_factor() -> None:
    operator = ssmax(0.5, bias=0.25, per="layer")
    counts = torch.tensor([[1.0], [math.e**2]])
    values = {name: of(number.init) for name, number in operator.margin.numbers().items()}
    assert operator.margin.factor(counts, **values).flatten().tolist() == pytest.approx([0.25, 1.25])
    assert ssmax().key == ssmax().changed(margin=SSMax(bias=Number(init=0.0))).key != ssmax_biased().key


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
