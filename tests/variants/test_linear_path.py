"""Recurrences over chunks compute the definition: values and gradients at any length, with padding."""

import pytest
import torch
from path_outcomes import assert_causality, assert_definition, assert_one_rounding, masks, most_entries, outcome

from variants import Heads, Operator
from variants.laws.inputs import random_inputs
from variants.paths import linear

IDENTITY = {"score": {"kind": "identity"}}
OPERATORS = [
    Operator(**IDENTITY, product={"kind": "linear_elu"}),
    Operator(**IDENTITY, product={"kind": "linear_elu"}, normaliser={"kind": "none"}, rescale={"kind": "scale"}),
    Operator(**IDENTITY, product={"kind": "relu"}, margin={"kind": "log_count"}, normaliser={"kind": "count"}),
    Operator(**IDENTITY, product={"kind": "mlp"}, normaliser={"kind": "clamped"}, readout={"kind": "value_bias"}),
    Operator(**IDENTITY, normaliser={"kind": "clamped"}, transform={"kind": "temperature"}),
    Operator(**IDENTITY, normaliser={"kind": "none"}, margin={"kind": "ssmax"}, output_gate={"kind": "per_channel"}),
    Operator(**IDENTITY, product={"kind": "cosformer"}),
    Operator(**IDENTITY, product={"kind": "cosformer", "length": 500}, head_norm={"kind": "rms"}),
]


@pytest.mark.parametrize("length", [1, 64, 65, 200])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_values_and_gradients_are_those_of_the_definition(operator: Operator, length: int) -> None:
    assert_definition(operator, linear.run, length)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_a_later_token_changes_no_bit_of_earlier_ones_and_low_precision_rounds_the_output_only(
    operator: Operator,
) -> None:
    assert_causality(operator, linear.run, length=200)
    assert_one_rounding(operator, linear.run, length=200)


def test_shapes_alone_can_be_computed() -> None:
    with torch.device("meta"):
        x = torch.empty(2, 2, 100, 16)
        found = linear.run(OPERATORS[0], Heads(x, x, x, torch.empty(2, 1, 100, 100, dtype=torch.bool)), {})
    assert found.shape == x.shape


def test_memory_is_linear_in_the_length() -> None:
    assert most_entries(OPERATORS[0], linear.run, 1024) == 2 * most_entries(OPERATORS[0], linear.run, 512)


def test_garbage_in_padding_leaves_no_trace() -> None:
    operator, length = OPERATORS[0], 130
    inputs, mask = random_inputs(operator, length=length), masks(length)["padding"]
    hidden = (~mask[0, 0, -1])[None, None, :, None]  # type: ignore[index]
    expected = outcome(operator, linear.run, inputs, mask)
    inputs = inputs._replace(k=inputs.k.masked_fill(hidden, 1e4), v=inputs.v.masked_fill(hidden, -1e30))
    came = outcome(operator, linear.run, inputs, mask)
    assert torch.equal(came["output"][0], expected["output"][0])
    assert (came["k"][0].masked_select(hidden[0]) == 0).all()
    assert (came["v"][0].masked_select(hidden[0]) == 0).all()
