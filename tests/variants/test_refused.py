"""Specs of the maths without a meaning are refused, and the message gives the rule."""

import re
from collections.abc import Callable
from typing import ClassVar, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

import ablate.variants as v
from ablate.grid import SpecError
from ablate.variants.model.named_backbones import tiny


def operator(**kinds: str) -> v.Operator:
    """Build an operator from the kinds of its stages."""
    return v.Operator(**{stage: {"kind": kind} for stage, kind in kinds.items()})


def lone_query(length: int) -> Tensor:
    x = torch.zeros(1, 2, length, 8)
    return v.attend(v.selective(), x[:, :, -1:], x, x).output


def cosformer_logits(length: int) -> Tensor:
    x = torch.zeros(1, 1, 13, 8)
    return v.CosFormer(length=length).logits(x, x, torch.zeros(13, 13))


LOGARITHM = "needs a positive score known by its logarithm, .*; got "
NEGATIVE = "needs a score that is not negative, and "
VECTORS = {"init": 0.2, "deep": 0.8}

TURNED = {"score": {"kind": "relu"}, "signals": {"count": 2}}
COSINE = {"score": {"kind": "identity"}, "product": {"kind": "cosformer"}}
HOT = {"score": {"kind": "square"}, "transform": {"kind": "temperature"}}


def fit_heads(positions: v.Positions, **stages: object) -> None:
    v.Operator(**stages).check(heads=4, kv_heads=4, head_width=16, positions=positions)


CASES: list[tuple[Callable[[], object], str]] = [
    # numbers
    (lambda: v.Number(init=0.0, per="tokens"), "constant, layer, head, query, token or a tuple of axes, got 'tokens'"),
    (lambda: v.Number(init=0.0, per="head", learned=False), "use per='constant'"),
    (lambda: v.Number(init=1.0, per="head", link="at_least_one"), r"init in \(1, inf\); got 1"),
    (lambda: v.Number(init=0.5, link="at_least_one"), r"init in \[1, inf\]; got 0.5"),
    (
        lambda: v.Vector(init=0.0, per="query"),
        "'query' is no granularity of a vector; it has 'constant', 'layer', 'head', 'token'",
    ),
    (lambda: v.Vector(init=0.0, spread=0.1), "spread=0.1 has no effect on a fixed vector"),
    (lambda: v.Vector(init=0.5, along="first", link="unit", per="head"), "link='unit' .* use link='identity'"),
    (
        lambda: v.Matrix(per="constant", learned=True),
        "'constant' is no granularity of a matrix; it has 'layer', 'head'",
    ),
    (lambda: v.Matrix(learned=False), "what varies along layer is learned"),
    (lambda: v.Matrix(link="positive"), "link='positive' .* any real numbers"),
    (lambda: v.ByDepth(**VECTORS, learned=True), "not one scalar for all layers; use per='layer'"),
    (lambda: v.ByDepth(init=0.5, deep=1.5, per="layer", link="unit"), r"init in \(0, 1\); got 1.5"),
    (lambda: v.Contrast(**VECTORS, per="query"), "per='query' .* use form='scalar'"),
    (lambda: v.Contrast(**VECTORS, link="unit"), "link='unit' .* use form='scalar'"),
    (lambda: v.RunningMean(of="scale", learned=True), "neither trained nor linked"),
    (lambda: v.RunningMean(of="scale", per="head"), "'head' is no granularity of a running mean; it has 'constant'"),
    (lambda: v.Affine(mean=v.RunningMean(of="n")), r"of='n' .* there are \['scale'\]"),
    # the numbers of a choice
    (lambda: v.SSA(b=v.Number(init=1.0, per="head")), "use link='positive'"),
    (lambda: v.SSA(n=2.0), r"write Number\(init=2\.0\)"),
    (lambda: v.Temperature(tau=v.Number(init=1.0)), "link='identity' .* use link='positive'"),
    (lambda: v.ForgetGate(gate=v.Number(init=0.5)), "link='identity' .* use link='unit'"),
    (lambda: v.fox("constant", forget=0.0), r"use visible=Window\(size=1\)"),
    (lambda: v.KeyValueBias(learned_value=v.Vector(init=0.0, per="token")), "per='token' .* one for all queries"),
    (lambda: v.PerChannel(opening=v.Number(init=0.5)), "instance of Vector"),
    (lambda: v.PerHead(opening=v.Vector(init=0.5)), "Vector is a subclass of "),
    (lambda: v.differential("query"), "use form='scalar'"),
    (lambda: v.off_by_one(0), r"n=0.0 is not above 0, .* for 0 there is softmax\(\)"),
    # the fields of a choice
    (lambda: v.HeadGroups(parts=(v.SSA(), v.SSA())), "head groups of ssa .* two or more different scores"),
    (
        lambda: v.HeadGroups(parts=(v.Relu(), v.HeadGroups(parts=(v.Relu(), v.Tanh())))),
        "not groups again; list all parts",
    ),
    (lambda: v.T5(count=6), "multiple of 4"),
    (lambda: v.T5(max_distance=16), r"max_distance=16 with count=32 .* nearest is 17"),
    (lambda: v.Bucket(count=8, max_distance=4), "=4 with count=8 .* nearest is 5"),
    (lambda: v.Yarn(factor=4, original=64, beta_fast=1), "beta_slow=1 and beta_fast=1: .* lower beta_slow"),
    (lambda: v.Yarn(factor=4, original=6), "got original=6, nearest is 7"),
    (lambda: v.Yarn(factor=4, original=64, share=0.3).check_width(16), "0.3 of 16 channels is 4.8"),
    (lambda: v.Operator(score=v.SSA), r"got the class SSA; call it: SSA\(\)"),
    # backbones
    (lambda: tiny("gpt2").changed(kv_heads=3), "kv_heads divides heads 4; got 3, nearest is 2"),
    (lambda: tiny("gpt2").changed(heads=5), "heads divides width 64; got 5, nearest is 4"),
    (lambda: tiny("gpt2").changed(parallel=True, norm_position="post"), "parallel=True is about norms before"),
    (lambda: tiny("gpt2").changed(feedforward="none"), "feedforward='none' has feedforward_width=0"),
    (lambda: tiny("gpt2").changed(feedforward_width=0), "every other kind a width above 0"),
    (lambda: tiny("pythia").changed(feedforward="none", feedforward_width=0), "parallel=True says nothing"),
    (lambda: tiny("bert"), r"'bert' is no family of backbones; there are gpt2, llama2, "),  # type: ignore[arg-type]
    # combinations of choices
    (lambda: operator(readout="ground_value"), "needs a normaliser with a ground state and 'total' has none"),
    (lambda: operator(extra="key_bias", normaliser="count"), "a sum of scores, and normaliser 'count' has none"),
    (
        lambda: v.Operator(extra=v.KeyValueBias(learned_value=v.Vector(init=0.0)), normaliser={"kind": "none"}),
        "normaliser 'none' has none",
    ),
    (lambda: v.integral_weights(1), "says nothing about one signal"),
    (lambda: v.differential().changed(signals={"count": 3}), r"takes 2 signals, got 3; use signals=Signals\(count=2\)"),
    (lambda: v.affine_scaled().changed(score={"kind": "uniform"}), "with n='visible' puts mean / K whatever alpha is"),
    (
        lambda: v.scaled_softmax().changed(head_norm=v.RMS()),
        "'scale' multiplies .*head_norm 'rms' divides it out again",
    ),
    (lambda: operator(score="square", normaliser="absolute"), "'square' is never negative .*use normaliser 'total'"),
    (lambda: operator(score="relu", margin="ssmax"), "score 'relu' under normaliser 'total' divides out again; leave"),
    (
        lambda: v.Operator(
            score={"kind": "head_groups", "parts": [{"kind": "uniform"}, {"kind": "identity"}]},
            normaliser={"kind": "absolute"},
            margin={"kind": "log_count"},
        ),
        "'head_groups' under normaliser 'absolute' divides out",
    ),
    (lambda: operator(score="identity"), NEGATIVE + "'identity' can be; use normaliser 'clamped'"),
    (lambda: operator(score="signed_exponential", normaliser="sink"), NEGATIVE + "'signed_exponential' can be"),
    (lambda: operator(score="relu", normaliser="ground"), LOGARITHM + "'relu'"),
    (
        lambda: v.Operator(score=v.HeadGroups(parts=(v.Exponential(), v.Relu())), normaliser={"kind": "ground"}),
        LOGARITHM + "'head_groups'",
    ),
    (lambda: v.sa_softmax().changed(score=v.SSA()), "needs score 'exponential'; got 'ssa'"),
    (lambda: operator(score="uniform", gate="suppress"), "the same whatever the logit, so gate would say nothing"),
    (lambda: v.Operator(score={"kind": "uniform"}, signals={"count": 2}), "so signals would say nothing"),
    (lambda: operator(score="uniform", normaliser="sink"), "so normaliser would say nothing"),
    # factors of all logits that score and normaliser divide out again
    (lambda: fit_heads(v.NoPositions(), **HOT), "transform 'temperature'"),
    (lambda: fit_heads(v.NoPositions(), **TURNED), "signals.count=2 multiplies all logits"),
    (
        lambda: fit_heads(v.Rotary(), **TURNED | {"signals": {"count": 2, "rotary": "before_split"}}),
        "count=2 multiplies",
    ),
    (lambda: fit_heads(v.NoPositions(), **COSINE, signals={"count": 4}), "use signals.count=1"),
    (lambda: fit_heads(v.NoPositions(), **COSINE, normaliser={"kind": "absolute"}), "here, which makes it 'total'"),
    # arguments
    (lambda: lone_query(13), "1 queries for 13 keys"),
    (lambda: cosformer_logits(11), "a sequence of 13 .* raise length to 12 or more"),
]


@pytest.mark.parametrize(("build", "words"), CASES, ids=[re.sub(r"\W+", "-", words) for _, words in CASES])
def test_what_has_no_meaning_is_refused_with_the_rule(build: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, SpecError), match=words):
        build()


def test_specs_at_the_border_of_what_is_refused_have_a_meaning() -> None:
    v.value_bias().changed(rescale={"kind": "scale"}, head_norm=v.RMS())
    v.affine_scaled(n="context").changed(score={"kind": "uniform"})
    v.affine_scaled().changed(score={"kind": "uniform"}, normaliser={"kind": "none"})
    fit_heads(v.Alibi(), **HOT)  # beside a bias
    fit_heads(v.NoPositions(), **HOT, normaliser={"kind": "sink"})
    fit_heads(v.NoPositions(), **HOT, forgetting={"kind": "selective"})
    fit_heads(v.Rotary(), **TURNED)
    fit_heads(v.Alibi(), **TURNED)
    fit_heads(v.NoPositions(), **TURNED, product={"kind": "mlp"})
    fit_heads(v.NoPositions(), score={"kind": "relu"}, margin={"kind": "log_count"}, gate={"kind": "suppress"})
    fit_heads(v.Alibi(), **COSINE, normaliser={"kind": "absolute"})
    assert v.Yarn(factor=4, original=7).bounds(8)[1] >= 1
    assert cosformer_logits(12).shape == (1, 1, 13, 13)


def test_the_mean_of_a_vector_is_refused_in_a_user_s_choice_too() -> None:
    class Mine(v.OutputGate):
        source: ClassVar[str] = "here"
        kind: Literal["mean_of_a_vector"] = "mean_of_a_vector"
        each: v.Vector = v.Vector(init=0.0, per="token")
        mean: v.RunningMean = v.RunningMean(of="each")

        def gate(self, output: Tensor, *, each: Tensor, mean: Tensor) -> Tensor:
            return output * each * mean

        def oracle(self, output: list[float], *, each: list[float], mean: float) -> list[float]:
            return [a * b * mean for a, b in zip(output, each, strict=True)]

    with pytest.raises(ValidationError, match=r"of='each' is no scalar number of its stage; there are \[\]"):
        Mine()
