"""Paths "cpu" and "linear" compute the definition in tiles: values, gradients, masks, ties, lengths and precisions."""

import math
from typing import Any

import pytest
import torch
from path_outcomes import (
    FORGETTING,
    GROUND,
    ONE_SCORE_OPERATORS,
    PROJECTIONS,
    Run,
    assert_causality,
    assert_definition,
    assert_one_rounding,
    defined,
    masks,
    most_entries,
    outcome,
    tied_inputs,
)
from torch import Tensor

from ablate.variants import Heads, Operator, causal, principled
from ablate.variants.laws.inputs import random_inputs
from ablate.variants.papers.principled import principled_ground
from ablate.variants.paths import cpu, linear
from ablate.variants.paths.choose import PathName, find_path

IDENTITY = {"score": {"kind": "identity"}}
TILED = [*ONE_SCORE_OPERATORS, *PROJECTIONS, *FORGETTING]
RECURRENT = [
    Operator(**IDENTITY, product={"kind": "linear_elu"}),
    Operator(**IDENTITY, product={"kind": "linear_elu"}, normaliser={"kind": "none"}, rescale={"kind": "scale"}),
    Operator(**IDENTITY, product={"kind": "relu"}, margin={"kind": "log_count"}, normaliser={"kind": "count"}),
    Operator(**IDENTITY, product={"kind": "mlp"}, normaliser={"kind": "clamped"}, readout={"kind": "value_bias"}),
    Operator(**IDENTITY, normaliser={"kind": "clamped"}, transform={"kind": "temperature"}),
    Operator(**IDENTITY, normaliser={"kind": "none"}, margin={"kind": "ssmax"}, output_gate={"kind": "per_channel"}),
    Operator(**IDENTITY, product={"kind": "cosformer"}),
    Operator(**IDENTITY, product={"kind": "cosformer", "length": 500}, head_norm={"kind": "rms"}),
]
CASES = [
    *(pytest.param(each, cpu.run, id=f"cpu {at} {each.label}") for at, each in enumerate(TILED)),
    *(pytest.param(each, linear.run, id=f"linear {at} {each.label}") for at, each in enumerate(RECURRENT)),
]


@pytest.mark.parametrize(("operator", "run"), CASES)
def test_values_and_gradients_are_those_of_the_definition(operator: Operator, run: Run) -> None:
    """A length of 130 needs three tiles; the last has two tokens."""
    for length in (1, 130):
        assert_definition(operator, run, length)


@pytest.mark.parametrize(("operator", "run"), CASES)
def test_a_later_token_changes_no_bit_of_earlier_ones_and_low_precision_rounds_the_output_only(
    operator: Operator, run: Run
) -> None:
    if "causality" not in operator.breaks:
        assert_causality(operator, run, length=130)
    assert_one_rounding(operator, run, length=130)


@pytest.mark.parametrize("operator", TILED, ids=lambda operator: operator.label)
def test_float32_errs_no_more_than_the_definition(operator: Operator) -> None:
    """Errors are against float64, in units of the largest entry; logits have a standard deviation of 9."""
    inputs = random_inputs(operator, length=130, scale=3.0).to(torch.float32)
    exact = outcome(operator, defined, inputs.to(torch.float64))
    found, usual = outcome(operator, cpu.run, inputs), outcome(operator, defined, inputs)
    for name, value in exact.items():
        size = value.abs().max() + 1e-30
        errors = [float(((came[name] - value) / size).abs().max()) for came in (found, usual)]
        assert errors[0] <= 4 * errors[1] + 1e-6, (name, errors)


@pytest.mark.parametrize("path", ["cpu", "reference"])
@pytest.mark.parametrize("gamma", [0.1, 0.3, -1.7, 2.3])
def test_an_exact_tie_under_a_margin_counts_as_relevant(gamma: float, path: PathName) -> None:
    """Every logit is gamma in float32, so a large ground value gets no weight."""
    operator = Operator(margin={"kind": "log_count"}, **GROUND, readout={"kind": "ground_value"})
    inputs, mean = tied_inputs(operator, gamma, 65)
    torch.testing.assert_close(outcome(operator, find_path(operator, path).run, inputs)["output"], mean)


@pytest.mark.parametrize(("operator", "run"), [(TILED[0], cpu.run), (RECURRENT[0], linear.run)], ids=["cpu", "linear"])
def test_memory_is_linear_in_the_length(operator: Operator, run: Run) -> None:
    assert most_entries(operator, run, 1024) <= 2 * most_entries(operator, run, 512)


def test_sequences_and_heads_share_one_map_of_a_window() -> None:
    operator, length = Operator(score={"kind": "ssa"}, visible={"kind": "window", "size": 5}), 512
    assert most_entries(operator, cpu.run, length) <= length**2


@pytest.mark.parametrize("operator", [each for each in TILED if each.normaliser.shared], ids=lambda each: each.label)
def test_large_logits_are_finite(operator: Operator) -> None:
    inputs = random_inputs(operator, length=65, scale=100.0).to(torch.float32)
    blind = causal(65, 65).clone()
    blind[7] = False
    for mask in (None, blind):
        for name, value in outcome(operator, cpu.run, inputs, mask).items():
            assert torch.isfinite(value).all(), name


@pytest.mark.parametrize(
    "operator", [principled_ground("head"), principled("head", gate_width=4)], ids=lambda o: o.label
)
def test_logits_of_zero_tie_with_a_threshold_of_zero(operator: Operator) -> None:
    """Then gradients are those of softmax; the gate is off."""
    inputs = random_inputs(operator, length=65)
    values = {"normaliser.threshold": 0.0, "gate.strength": -800.0}
    numbers = {name: torch.full_like(x, values[name]) if name in values else x for name, x in inputs.numbers.items()}
    inputs = inputs._replace(q=0 * inputs.q, numbers=numbers)
    found, expected = outcome(operator, cpu.run, inputs), outcome(operator, defined, inputs)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_a_recurrence_computes_shapes_alone() -> None:
    with torch.device("meta"):
        x = torch.empty(2, 2, 100, 16)
        found = linear.run(RECURRENT[0], Heads(x, x, x, torch.empty(2, 1, 100, 100, dtype=torch.bool)), {})
    assert found.shape == x.shape


@pytest.mark.parametrize("operator", [RECURRENT[0], RECURRENT[-2]], ids=["linear_elu", "cosformer"])
def test_sums_over_many_chunks_are_those_over_few(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_inputs(operator, length=4161)  # 66 chunks, more than one block of sums
    found = outcome(operator, linear.run, inputs)
    monkeypatch.setattr(linear, "CHUNK", 1024)
    for name, value in outcome(operator, linear.run, inputs).items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_garbage_in_padding_leaves_no_trace_in_a_recurrence() -> None:
    operator, length = RECURRENT[0], 130
    inputs, mask = random_inputs(operator, length=length), masks(length)["padding"]
    hidden = (~mask[0, 0, -1])[None, None, :, None]  # type: ignore[index]
    expected = outcome(operator, linear.run, inputs, mask)
    inputs = inputs._replace(k=inputs.k.masked_fill(hidden, 1e4), v=inputs.v.masked_fill(hidden, -1e30))
    came = outcome(operator, linear.run, inputs, mask)
    assert torch.equal(came["output"][0], expected["output"][0])
    assert (came["k"][0].masked_select(hidden[0]) == 0).all()
    assert (came["v"][0].masked_select(hidden[0]) == 0).all()


@pytest.mark.parametrize("garbage", [math.nan, 1e30])
@pytest.mark.parametrize("operator", TILED[:1] + PROJECTIONS[:1] + FORGETTING[:1], ids=lambda operator: operator.label)
def test_garbage_in_padding_leaves_no_trace_in_tiles(operator: Operator, garbage: float) -> None:
    """Hidden queries are finite and have no loss: their own rows may be anything."""
    length = 130
    inputs, mask = random_inputs(operator, length=length), masks(length)["padding"]
    hidden = (~mask[:, :, -1])[..., None]  # type: ignore[index]

    def run(*given: Any) -> Tensor:
        return cpu.run(*given).masked_fill(hidden, 0)

    expected = outcome(operator, run, inputs, mask)
    k, v = inputs.k.masked_fill(hidden, garbage), inputs.v.masked_fill(hidden, garbage)
    came = outcome(operator, run, inputs._replace(q=inputs.q.masked_fill(hidden, 1e30), k=k, v=v), mask)
    for name, value in expected.items():
        assert torch.equal(came[name], value), name


@pytest.mark.parametrize("operator", FORGETTING, ids=lambda operator: operator.label)
def test_a_forget_gate_of_zero_forgets_all_before_and_has_finite_gradients(operator: Operator) -> None:
    inputs = random_inputs(operator, length=65)
    gate = inputs.numbers["forgetting.gate"].clone()
    gate[:, :, 40] = 0
    inputs = inputs._replace(numbers={**inputs.numbers, "forgetting.gate": gate})
    found, expected = outcome(operator, cpu.run, inputs), outcome(operator, defined, inputs)
    for name, value in expected.items():
        assert torch.isfinite(found[name]).all(), name
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9, msg=name)
