"""Attention weights are dropped one by one after normalisation, on every path that computes them, in training only."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.variants import Heads, Operator, Tokens, Transformer, softmax, ssa
from ablate.variants.attend import attention
from ablate.variants.laws.inputs import random_inputs
from ablate.variants.model.named_backbones import tiny
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, find_path

P, LENGTH, DRAWS = 0.3, 5, 3000

FOLDED: dict[str, dict[str, Any]] = {
    "softmax": {},
    "sink": {"normaliser": {"kind": "sink"}},
    "ground value": {"normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    "learned key and value": {"extra": {"kind": "key_value_bias"}},
    "two signals": {"signals": {"count": 2}, "merge": {"kind": "difference"}},
    "mean": {"signals": {"count": 2}, "merge": {"kind": "mean"}},
    "affine": {"rescale": {"kind": "affine"}},
    "scale": {"rescale": {"kind": "scale"}, "readout": {"kind": "value_bias"}},
}
UNFOLDED: dict[str, dict[str, Any]] = {
    "ssa": {"score": {"kind": "ssa"}},
    "unnormalised": {"score": {"kind": "sigmoid"}, "normaliser": {"kind": "none"}},
    "signed": {"score": {"kind": "signed_exponential"}, "normaliser": {"kind": "absolute"}},
    "ground": {"normaliser": {"kind": "ground"}, "readout": {"kind": "ground_value"}},
}
LINEAR: dict[str, Any] = {"score": {"kind": "identity"}, "normaliser": {"kind": "none"}}


def outputs(operator: Operator, name: str, dropout: float, count: int) -> Tensor:
    """[count, H, T, D]: the same heads, `count` times."""
    inputs = random_inputs(operator, length=LENGTH)
    q, k, v = (x[:1].float().expand(count, -1, -1, -1) for x in (inputs.q, inputs.k, inputs.v))
    numbers = {key: value[:1].float() for key, value in inputs.numbers.items()}
    torch.manual_seed(11)
    found = find_path(operator, name).run(operator, Heads(q, k, v, dropout=dropout), numbers)  # type: ignore[arg-type]
    return found.double()


def standard_errors(found: Tensor, expected: Tensor) -> float:
    """The largest distance of a mean over draws from what it should be, in its own standard errors."""
    se = found.std(0) / math.sqrt(len(found)) + 1e-7
    return float(((found.mean(0) - expected) / se).abs().max())


@pytest.mark.parametrize("name", FOLDED)
def test_draws_have_the_mean_of_the_output_and_the_spread_of_the_definition(name: str) -> None:
    """Second moments: what is dropped together, and how often, is the same on both paths."""
    operator, squares = Operator(**FOLDED[name]), []
    for path in ("reference", "sdpa"):
        exact, found = outputs(operator, path, 0.0, 1)[0], outputs(operator, path, P, DRAWS)
        assert standard_errors(found, exact) < 5, path
        assert standard_errors(found * (1 - P), exact) > 5, f"{path}: the test would not see a missing 1 / (1 - p)"
        squares.append((found - exact).square())
    defined, fused = squares
    se = ((fused.var(0) + defined.var(0)) / DRAWS).sqrt() + 1e-9
    assert float(((fused.mean(0) - defined.mean(0)) / se).abs().max()) < 5


@pytest.mark.parametrize("choices", [{}, {"score": {"kind": "ssa"}}, LINEAR], ids=["softmax", "ssa", "linear"])
def test_every_path_that_accepts_a_call_with_dropout_drops_weights(choices: dict[str, Any]) -> None:
    operator = Operator(**choices)
    for path in PATHS:
        if path.reason(operator, Case(LENGTH, LENGTH, dropout=True)) is None:
            kept, dropped = (outputs(operator, path.name, p, 9) for p in (0.0, P))
            assert not torch.equal(kept, dropped), path.name


@pytest.mark.parametrize("name", ["softmax", *UNFOLDED])
def test_a_weight_is_dropped_or_divided_by_what_is_left(name: str) -> None:
    operator = Operator(**{**FOLDED, **UNFOLDED}[name])
    inputs = random_inputs(operator, length=63)
    heads = Heads(inputs.q, inputs.k, inputs.v)
    torch.manual_seed(5)
    kept, dropped = (attention(operator, heads._replace(dropout=p), inputs.numbers) for p in (0.0, P))
    for whole, part in ((kept.weights, dropped.weights), (kept.ground, dropped.ground)):
        if whole is None or part is None:
            assert whole is part
            continue
        there = whole != 0
        ratio = (part / whole)[there]
        gone = ratio == 0
        torch.testing.assert_close(ratio[~gone], torch.full_like(ratio[~gone], 1 / (1 - P)))
        assert abs(gone.double().mean().item() - P) < 5 * math.sqrt(P * (1 - P) / gone.numel())
        assert not part[~there].any()


def test_without_dropout_nothing_is_drawn_and_no_bit_moves() -> None:
    x = torch.randint(11, (2, 13), generator=torch.Generator().manual_seed(0))
    plain, dropping = (
        Transformer(tiny("gpt2").changed(attention_dropout=p), [softmax(), ssa()], inputs=Tokens(11), seed=0)
        for p in (0.0, 0.5)
    )
    state = torch.get_rng_state()
    expected = plain(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(dropping.eval()(x), expected)
    torch.manual_seed(1)
    first = dropping.train()(x)
    assert not torch.equal(first, dropping(x))
    torch.manual_seed(1)
    assert torch.equal(dropping(x), first)
