"""The stages after the normaliser: merges, rescales, readouts, head norms, output gates, and what consists of them."""

from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from grid import SpecError
from variants import (
    Ground,
    GroundValue,
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
from variants.number import ByDepth, Contrast, Number, Vector
from variants.papers.affine_scaled import affine_gated, affine_scaled, gated_elements, gated_heads, learned_sink
from variants.papers.attention_sinks import scaled_softmax, value_bias
from variants.papers.integral import differential, integral, integral_control, integral_weights
from variants.stages.head_norms.rms import RMS
from variants.stages.merges.difference import Difference
from variants.stages.merges.mean import MeanWeights
from variants.stages.normalisers.count import Count
from variants.stages.normalisers.none import NoNormaliser
from variants.stages.output_gates.per_channel import PerChannel
from variants.stages.output_gates.per_head import PerHead
from variants.stages.rescales.affine import Affine
from variants.stages.rescales.scale import Scale
from variants.stages.scores.uniform import Uniform

EXACT = {"rtol": 1e-12, "atol": 1e-14}
LENGTH = 13


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

    def test_on_weights_it_is_the_mean_of_the_signals_maps(self) -> None:
        q, k, v = qkv(width=12)
        maps = [plain(q[..., s : s + 4], k[..., s : s + 4], scale=0.5) for s in (0, 4, 8)]
        found = attend(integral_weights(3), q, k, v)
        torch.testing.assert_close(found.weights, sum(maps) / 3, **EXACT)
        torch.testing.assert_close(found.output, sum(maps) / 3 @ v, **EXACT)

    def test_on_weights_equal_signals_are_softmax(self) -> None:
        q, k, v = qkv(width=4)
        found = attend(integral_weights(3), q.repeat(1, 1, 1, 3), k.repeat(1, 1, 1, 3), v).weights
        torch.testing.assert_close(found, attend(softmax(), q, k, v).weights, **EXACT)

    def test_on_weights_it_is_not_integral_on_logits(self) -> None:
        q, k, v = qkv()
        difference = attend(integral_weights(2), q, k, v).weights - attend(integral(2), q, k, v).weights
        assert difference.abs().max() > 1e-2


def plain_logits(q: Tensor, k: Tensor, signal: int, width: int) -> Tensor:
    own = slice(signal * width, (signal + 1) * width)
    return q[..., own] @ k[..., own].transpose(-2, -1) / width**0.5


class TestGroundIsMergedToo:
    """Signals keep a ground state each, and theirs is merged like the weights of keys."""

    def grounds(self, operator: Operator, **numbers: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        q, k, v = qkv()
        operator = operator.changed(normaliser=Ground(threshold=Number(init=0.5)), readout=GroundValue())
        full = {**numbers, "normaliser.threshold": of(0.5), "readout.ground_value": draw(1, 3, 1, 8)}
        found = attend(operator, q, k, v, numbers=full)
        single = Operator(normaliser=operator.normaliser)
        each = [attend(single, q[..., s : s + 4], k[..., s : s + 4], v).ground for s in (0, 4)]
        expected = found.weights @ v + found.ground * full["readout.ground_value"]
        torch.testing.assert_close(found.output, expected, **EXACT)
        return found.weights.sum(-1, keepdim=True) + found.ground, found.ground, each

    def test_by_their_mean(self) -> None:
        total, ground, (first, second) = self.grounds(integral_weights(2))
        torch.testing.assert_close(ground, (first + second) / 2, **EXACT)
        torch.testing.assert_close(total, torch.ones_like(total), **EXACT)

    def test_by_their_difference(self) -> None:
        operator = Operator(signals=Signals(count=2), merge=Difference())
        total, ground, (first, second) = self.grounds(operator, **{"merge.factor": of(0.3)})
        torch.testing.assert_close(ground, first - 0.3 * second, **EXACT)
        torch.testing.assert_close(total, torch.full_like(total, 0.7), **EXACT)


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

    def test_without_lambda_it_is_softmax_on_the_first_signal_and_keeps_its_norm(self) -> None:
        q, k, v = qkv()
        found = attend(differential(), q, k, v, numbers=differing(0.0)).output
        alone = attend(softmax(), q[..., :4], k[..., :4], v).output
        torch.testing.assert_close(found, 0.8 * F.rms_norm(alone, (8,), eps=1e-5), **EXACT)
        assert (found - alone).abs().max() > 0.1

    @pytest.mark.parametrize("factor", [-0.5, 0.2, 0.9, 1.0, 1.7])
    def test_the_first_token_knows_only_the_sign_of_one_minus_lambda(self, factor: float) -> None:
        q, k, v = qkv()
        first = attend(differential(), q, k, v, numbers=differing(factor)).output[:, :, 0]
        expected = 0.8 * F.rms_norm((1 - factor) * v[:, :, 0], (8,), eps=1e-5)
        torch.testing.assert_close(first, expected, **EXACT)
        sign = 0.0 if factor == 1 else 1.0 if factor < 1 else -1.0
        torch.testing.assert_close(first, sign * 0.8 * F.rms_norm(v[:, :, 0], (8,)), rtol=1e-2, atol=1e-3)

    def test_the_size_of_values_does_not_matter(self) -> None:
        q, k, v = qkv()
        found, larger = (attend(differential(), q, k, x, numbers=differing(0.4)).output for x in (v * 1e3, v * 1e6))
        torch.testing.assert_close(larger, found, rtol=1e-6, atol=0)

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

    def test_a_query_that_sees_nothing_gets_0_with_finite_gradients(self) -> None:
        q, k, v = (x.requires_grad_() for x in qkv())
        output = attend(differential(), q, k, v, mask=holes(), numbers=differing(0.4)).output
        assert (output[:, :, 5] == 0).all()
        output.square().sum().backward()
        assert all(x.grad.isfinite().all() for x in (q, k, v))


def affine(scale: Tensor, mean: Tensor) -> dict[str, Tensor]:
    return {"rescale.scale": scale, "rescale.mean": mean}


ALPHA, MEAN = (
    torch.rand((2, 3, LENGTH, 1), generator=torch.Generator().manual_seed(6)).double(),
    draw(1, 3, 1, 1).abs(),
)


class TestAffine:
    def test_over_visible_keys_every_row_sums_to_the_mean(self) -> None:
        mask = holes()
        weights = attend(affine_scaled(), *qkv(), mask=mask, numbers=affine(ALPHA, MEAN)).weights
        expected = MEAN[..., 0].expand(2, 3, LENGTH).clone()
        expected[..., 5] = 0  # sees nothing
        torch.testing.assert_close(weights.sum(-1), expected, **EXACT)
        assert (weights[..., ~mask] == 0).all()

    def test_over_the_context_a_row_sums_to_what_its_share_of_keys_makes(self) -> None:
        mask = holes()
        weights = attend(affine_scaled(n="context"), *qkv(), mask=mask, numbers=affine(ALPHA, MEAN)).weights
        share = mask.sum(-1).double() / LENGTH
        expected = ALPHA[..., 0] + share * (MEAN - ALPHA)[..., 0]
        expected[..., 5] = 0
        torch.testing.assert_close(weights.sum(-1), expected, **EXACT)
        assert (weights[..., ~mask] == 0).all()

    @pytest.mark.parametrize("n", ["visible", "context"])
    def test_it_is_softmax_and_a_mean_of_values(self, n: str) -> None:
        q, k, v = qkv()
        found = attend(affine_scaled(n=n), q, k, v, numbers=affine(ALPHA, MEAN)).output
        keys = torch.arange(1, LENGTH + 1)[:, None] if n == "visible" else LENGTH
        expected = ALPHA * attend(softmax(), q, k, v).output + (MEAN - ALPHA) / keys * v.cumsum(-2)
        torch.testing.assert_close(found, expected, **EXACT)

    def test_only_the_context_knows_how_long_the_sequence_is(self) -> None:
        for n, equal in (("visible", True), ("context", False)):
            operator, numbers = affine_scaled(n=n), affine(of(0.3), of(0.8))
            whole, prefix = (
                attend(operator, *(x[:, :, :length] for x in qkv()), numbers=numbers).output for length in (LENGTH, 7)
            )
            assert torch.allclose(whole[:, :, :7], prefix, rtol=1e-12, atol=1e-14) == equal
            assert ("prefix" in operator.breaks) != equal

    def test_ground_and_keys_together_sum_to_the_mean(self) -> None:
        operator = affine_scaled().changed(normaliser=Ground(threshold=Number(init=0.5)))
        numbers = {**affine(ALPHA, MEAN), "normaliser.threshold": of(0.5)}
        found, before = (
            attend(operator, *qkv(), numbers=numbers),
            attend(operator.changed(rescale={"kind": "none"}), *qkv()),
        )
        torch.testing.assert_close(found.ground, ALPHA * before.ground, **EXACT)
        total = found.weights.sum(-1, keepdim=True) + found.ground
        torch.testing.assert_close(total, MEAN.expand_as(total), **EXACT)

    def test_the_gate_comes_after_it(self) -> None:
        q, k, v = qkv()
        gate = draw(2, 3, LENGTH, 8, seed=7).sigmoid()
        found = attend(affine_gated(), q, k, v, numbers={**affine(ALPHA, MEAN), "output_gate.opening": gate}).output
        ungated = attend(affine_scaled(), q, k, v, numbers=affine(ALPHA, MEAN)).output
        torch.testing.assert_close(found, gate * ungated, **EXACT)

    def test_linear_clipping_is_that_of_the_paper(self) -> None:
        raw = torch.tensor([-7.0, -5.0, -1.0, 0.0, 2.0, 5.0, 9.0], dtype=torch.float64)
        found = affine_scaled().numbers()["rescale.scale"].value(raw, 0)
        expected = torch.tensor([0, 0, 0.4, 0.5, 0.7, 1, 1], dtype=torch.float64)
        torch.testing.assert_close(found, expected, **EXACT)
        sigmoid = affine_scaled("unit").numbers()["rescale.scale"].value(raw, 0)
        torch.testing.assert_close(sigmoid, raw.sigmoid(), **EXACT)


class TestScaleAndBias:
    @pytest.mark.parametrize("alpha", [2.0, 0.1, 0.02])
    def test_a_scaled_row_sums_to_alpha(self, alpha: float) -> None:
        found = attend(scaled_softmax(alpha), *qkv(), numbers={"rescale.factor": of(alpha)})
        torch.testing.assert_close(
            found.weights.sum(-1), torch.full((2, 3, LENGTH), alpha, dtype=torch.float64), **EXACT
        )
        torch.testing.assert_close(found.output, alpha * attend(softmax(), *qkv()).output, **EXACT)

    def test_a_scaled_ground_state_keeps_its_share(self) -> None:
        ground = Operator(normaliser=Ground())
        found, before = attend(ground.changed(rescale=Scale(factor=Number(init=3.0))), *qkv()), attend(ground, *qkv())
        torch.testing.assert_close(
            found.ground / found.weights.sum(-1, True), before.ground / before.weights.sum(-1, True)
        )
        torch.testing.assert_close(found.ground, 3 * before.ground, **EXACT)

    def test_a_value_bias_is_a_bias_on_every_value_and_leaves_weights_alone(self) -> None:
        q, k, v = qkv()
        bias = draw(1, 3, 1, 8, seed=8)
        found, before = attend(value_bias(), q, k, v, numbers={"readout.value_bias": bias}), attend(softmax(), q, k, v)
        assert torch.equal(found.weights, before.weights)
        torch.testing.assert_close(found.output, attend(softmax(), q, k, v + bias).output, **EXACT)

    def test_a_query_that_sees_nothing_gets_the_value_bias(self) -> None:
        bias = draw(1, 3, 1, 8, seed=8)
        found = attend(value_bias(), *qkv(), mask=holes(), numbers={"readout.value_bias": bias}).output[:, :, 5]
        assert torch.equal(found, bias[:, :, 0].expand_as(found))


class TestNormAndGates:
    def test_the_norm_is_that_of_torch_times_gain_and_factor(self) -> None:
        x, gain = draw(2, 3, 7, 8), draw(1, 3, 1, 8, seed=9)
        found = RMS(eps=1e-3).normalise(x, gain=gain, factor=of(0.25))
        torch.testing.assert_close(found, 0.25 * gain * F.rms_norm(x, (8,), eps=1e-3), **EXACT)
        assert (RMS().normalise(torch.zeros(1, 1, 2, 8), gain=of(1.0), factor=of(1.0)) == 0).all()

    @pytest.mark.parametrize(("operator", "channels"), [(gated_heads(), 1), (gated_elements(), 8)])
    def test_a_gate_multiplies_the_output_and_leaves_weights_alone(self, operator: Operator, channels: int) -> None:
        gate = draw(2, 3, LENGTH, channels, seed=7).sigmoid()
        found, before = attend(operator, *qkv(), numbers={"output_gate.opening": gate}), attend(softmax(), *qkv())
        assert torch.equal(found.weights, before.weights)
        assert torch.equal(found.output, gate * before.output)

    @pytest.mark.parametrize("operator", [gated_heads(), gated_elements()])
    def test_a_gate_starts_half_open_and_is_learned_from_the_layer_s_input(self, operator: Operator) -> None:
        assert torch.equal(attend(operator, *qkv()).output, attend(softmax(), *qkv()).output / 2)
        model = Transformer(gpt2(layers=1, heads=2, width=16), [operator], inputs=Scalars(), seed=0)
        model(draw(2, 7, 1).float()).square().sum().backward()
        (projection,) = (p for name, p in model.named_parameters() if "projection" in name)
        assert (projection.grad.abs().sum(-1) > 0).all()


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a mean of one": (lambda: integral_weights(1), ValidationError, "says nothing about one signal"),
    "a difference of three": (
        lambda: differential().changed(signals=Signals(count=3)),
        SpecError,
        r"takes 2 signals, got 3; use signals=Signals\(count=2\)",
    ),
    "lambda of vectors per query": (lambda: differential("query"), ValidationError, "use form='scalar'"),
    "a trained lambda for all layers": (
        lambda: Difference(factor=Contrast(init=0.2, deep=0.8, per="constant", learned=True)),
        ValidationError,
        "use per='layer'",
    ),
    "alpha of an average": (
        lambda: affine_scaled().changed(score=Uniform()),
        SpecError,
        "each of K visible keys the weight 1 / K, on which rescale 'affine' with n='visible' puts mean / K whatever",
    ),
    "alpha of an average by the count": (
        lambda: affine_scaled().changed(score=Uniform(), normaliser=Count()),
        SpecError,
        "under normaliser 'count'",
    ),
    "a scale that the norm divides out": (
        lambda: scaled_softmax().changed(head_norm=RMS()),
        SpecError,
        "rescale 'scale' multiplies the output of a head by one number, and head_norm 'rms' divides it out again",
    ),
    "a scale of the ground value too": (
        lambda: Operator(normaliser=Ground(), readout=GroundValue(), rescale=Scale(), head_norm=RMS()),
        ValidationError,
        "divides it out again",
    ),
    "a link that alpha has not": (
        lambda: affine_scaled("positive"),  # type: ignore[arg-type]
        SpecError,
        "link of affine_scaled is one of 'clipped', 'unit'; got 'positive'",
    ),
    "a granularity that v0 has not": (
        lambda: value_bias("haed"),  # type: ignore[arg-type]
        SpecError,
        "per of value_bias is one of 'layer', 'head'; got 'haed'; did you mean 'head'",
    ),
    "no eps": (lambda: RMS(eps=0.0), ValidationError, "greater than 0"),
    "a third N": (lambda: Affine(n="keys"), ValidationError, "'visible' or 'context'"),
    "a gate beyond its border": (
        lambda: PerHead(opening=Number(init=1.0, per="token", link="unit")),
        ValidationError,
        r"init in \(0, 1\); got 1",
    ),
    "a scalar for channels": (lambda: PerChannel(opening=Number(init=0.5)), ValidationError, "instance of Vector"),
    "a vector for a head": (lambda: PerHead(opening=Vector(init=0.5)), ValidationError, "holds no Vector"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_rule(case: str) -> None:
    build, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        build()


def test_a_scale_beside_a_value_bias_and_alpha_of_the_context_or_of_sums_say_something() -> None:
    value_bias().changed(rescale=Scale(), head_norm=RMS())
    affine_scaled(n="context").changed(score=Uniform())
    affine_scaled().changed(score=Uniform(), normaliser=NoNormaliser())


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
