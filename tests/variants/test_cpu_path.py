"""Tiles compute the definition: values, every gradient, masks, ties, lengths and precisions."""

import pytest
import torch
from path_outcomes import (
    FORGETTING,
    GROUND,
    ONE_SCORE_OPERATORS,
    PROJECTIONS,
    assert_causality,
    assert_definition,
    assert_one_rounding,
    defined,
    most_entries,
    outcome,
)

from variants import Operator, causal, principled
from variants.laws.inputs import Inputs, random_inputs
from variants.papers.principled import principled_ground
from variants.paths import cpu
from variants.paths.choose import PathName, find_path

OPERATORS = [*ONE_SCORE_OPERATORS, *PROJECTIONS, *FORGETTING]
IDS = [f"{at} {operator.label}" for at, operator in enumerate(OPERATORS)]


@pytest.mark.parametrize("length", [1, 65, 130])
@pytest.mark.parametrize("operator", OPERATORS, ids=IDS)
def test_values_and_gradients_are_those_of_the_definition(operator: Operator, length: int) -> None:
    assert_definition(operator, cpu.run, length)


@pytest.mark.parametrize("operator", OPERATORS, ids=IDS)
def test_float32_errs_no_more_than_the_definition(operator: Operator) -> None:
    """Errors are against float64, in units of the largest entry; logits have a standard deviation of 9."""
    inputs = random_inputs(operator, length=130, scale=3.0).to(torch.float32)
    exact = outcome(operator, defined, inputs.to(torch.float64))
    found, usual = outcome(operator, cpu.run, inputs), outcome(operator, defined, inputs)
    for name, value in exact.items():
        size = value.abs().max() + 1e-30
        errors = [float(((came[name] - value) / size).abs().max()) for came in (found, usual)]
        assert errors[0] <= 4 * errors[1] + 1e-6, (name, errors)


@pytest.mark.parametrize("operator", OPERATORS, ids=IDS)
def test_a_later_token_changes_no_bit_of_earlier_ones_and_low_precision_rounds_the_output_only(
    operator: Operator,
) -> None:
    if "causality" not in operator.breaks:
        assert_causality(operator, cpu.run, length=130)
    assert_one_rounding(operator, cpu.run, length=65)


@pytest.mark.parametrize("path", ["cpu", "reference"])
@pytest.mark.parametrize("gamma", [0.1, 0.3, -1.7, 2.3])
def test_an_exact_tie_under_a_margin_counts_as_relevant(gamma: float, path: PathName) -> None:
    """Every logit is gamma in float32, so a large ground value gets no weight."""
    operator = Operator(margin={"kind": "log_count"}, **GROUND, readout={"kind": "ground_value"})
    inputs = random_inputs(operator, length=65).to(torch.float32)
    one, numbers = torch.ones_like(inputs.q[..., :1]), inputs.numbers
    values = {"normaliser.threshold": gamma, "readout.ground_value": 1e6}
    numbers = {name: torch.full_like(x, values[name]) if name in values else x for name, x in numbers.items()}
    inputs = Inputs(gamma * one, one, inputs.v, numbers)
    seen = causal(65, 65).to(inputs.v)
    mean = (seen / seen.sum(-1, keepdim=True)) @ inputs.v
    torch.testing.assert_close(outcome(operator, find_path(operator, path).run, inputs)["output"], mean)


def test_memory_is_linear_in_the_length() -> None:
    assert most_entries(OPERATORS[0], cpu.run, 1024) <= 2 * most_entries(OPERATORS[0], cpu.run, 512)


@pytest.mark.parametrize(
    "operator", [each for each in OPERATORS if each.normaliser.shared], ids=lambda each: each.label
)
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
