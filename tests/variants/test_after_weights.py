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
from variants.papers.affine_scaled import affine_scaled, learned_sink
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
