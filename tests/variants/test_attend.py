"""Numbers and widths that `attend` asks for and does not fill in."""

import pytest
import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants import (
    ForgetGate,
    Number,
    Operator,
    PerHead,
    affine_scaled,
    attend,
    fox,
    key_bias,
    principled,
    scaled_softmax,
    selective,
    softmax,
    ssa,
    value_bias,
)
from ablate.variants.laws.examples import named_operators
from ablate.variants.laws.inputs import fit, random_inputs

LEARNED = [each for each in named_operators() if any(number.trained for number in each.numbers().values())]


def heads(channels: int = 8, length: int = 5) -> Tensor:
    return torch.randn(3, 1, 2, length, channels, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("operator", LEARNED, ids=lambda each: each.label)
def test_learned_numbers_are_passed_or_asked_for(operator: Operator) -> None:
    inputs = random_inputs(operator)
    width = {"head_width": fit(operator).channels}
    with pytest.raises(SpecError):
        attend(operator, inputs.q, inputs.k, inputs.v, **width)
    drawn = any(each.trained and (each.random or each.projection_std) for each in operator.numbers().values())
    if drawn:  # a random start is no value
        with pytest.raises(SpecError):
            attend(operator, inputs.q, inputs.k, inputs.v, numbers="start", **width)
    else:
        output = attend(operator, inputs.q, inputs.k, inputs.v, numbers="start", **width).output
        assert output.isfinite().all()


def test_fixed_numbers_need_not_be_passed() -> None:
    q, k, v = heads()
    scaled = attend(scaled_softmax(0.5), q, k, v).output
    torch.testing.assert_close(scaled, 0.5 * attend(softmax(), q, k, v).output)
    torch.testing.assert_close(attend(scaled_softmax(0.5), q, k, v, numbers="start").output, scaled)


def test_the_start_of_numbers_is_their_value_at_step_0() -> None:
    q, k, v = heads()
    gate = Operator(output_gate=PerHead(opening=Number(init=0.25, per="token", link="unit")))
    torch.testing.assert_close(attend(gate, q, k, v, numbers="start").output, attend(softmax(), q, k, v).output / 4)
    half = torch.full((1, 1, 5, 1), 0.5)
    operator = Operator(forgetting=ForgetGate())  # its projection starts at 0
    expected = attend(operator, q, k, v, numbers={"forgetting.gate": half}).output
    torch.testing.assert_close(attend(operator, q, k, v, numbers="start").output, expected)


def test_the_width_of_heads_is_needed_where_a_gate_adds_channels() -> None:
    q, k, _ = heads(8 + 4)
    v = q[..., :8]
    operator = principled(gate_width=4)
    attend(operator, q, k, v, numbers="start", head_width=8)
    for wrong in ({}, {"head_width": 12}, {"head_width": 7}):
        with pytest.raises(SpecError):
            attend(operator, q, k, v, numbers="start", **wrong)
    with pytest.raises(SpecError):
        attend(softmax(), q, k, v, head_width=8)
    attend(principled(gate_width=4, gate_dims="split"), q, k, q, numbers="start")


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("queries", [1, 5])
def test_a_forget_gate_has_a_value_of_every_key(tokens: int, queries: int) -> None:
    q, k, v = heads()
    q = q[..., -queries:, :]
    gate = torch.rand(1, 2, 5, 1, generator=torch.Generator().manual_seed(1))
    attend(fox(), q, k, v, numbers={"forgetting.gate": gate})
    with pytest.raises(SpecError):
        attend(fox(), q, k, v, numbers={"forgetting.gate": gate[:, :, -tokens:]})
    per_head = fox().changed(forgetting={"kind": "forget_gate", "gate": {"init": 0.5, "per": "head", "link": "unit"}})
    attend(per_head, q, k, v, numbers={"forgetting.gate": gate[:, :, :1]})  # one for all tokens, by its granularity


@pytest.mark.parametrize("operator", [ssa(), affine_scaled(), key_bias(), value_bias(), fox()])
def test_a_refusal_is_one_sentence(operator: Operator) -> None:
    q, k, v = heads()
    with pytest.raises(SpecError) as refused:
        attend(operator, q, k, v)
    assert len(str(refused.value).splitlines()) == 1
    assert attend(selective(), q, k, v).output.shape == q.shape
