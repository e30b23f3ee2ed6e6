"""Laws that hold for every operator there is. A new choice is found and proved here without a line of its own."""

import pytest
import torch
from operators import EXAMPLES, HEAD_WIDTH, IDS, random_numbers, random_qkv
from oracle import attend_in_floats
from torch import Tensor

from variants import Operator, Scalars, Transformer, attend, causal, gpt2, granularities
from variants.number import Vector
from variants.paths.choose import PATHS

every_operator = pytest.mark.parametrize("operator", EXAMPLES, ids=IDS)


def output(operator: Operator, q: Tensor, k: Tensor, v: Tensor, **extra: object) -> Tensor:
    return attend(operator, q, k, v, **{"numbers": random_numbers(operator), **extra}).output


@every_operator
def test_it_equals_its_oracle_in_plain_floats(operator: Operator) -> None:
    q, k, v = random_qkv(operator, length=7)
    numbers = random_numbers(operator)
    found = output(operator, q, k, v)
    visible = causal(7, 7).tolist()
    for head in range(2):
        own = {
            name: value[0, head, 0].tolist() if "ground_value" in name else value[0, head].item()
            for name, value in numbers.items()
        }
        expected = attend_in_floats(operator, *(x[1, head].tolist() for x in (q, k, v)), visible, own)
        torch.testing.assert_close(found[1, head], torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12)


@every_operator
def test_the_future_does_not_change_the_past(operator: Operator) -> None:
    q, k, v = random_qkv(operator, length=63)
    before = output(operator, q, k, v)
    k[:, :, 40:] += 1.0
    v[:, :, 40:] += 1.0
    assert (output(operator, q, k, v)[:, :, :40] == before[:, :, :40]).all()


@every_operator
def test_a_prefix_computes_what_the_whole_computes_there(operator: Operator) -> None:
    q, k, v = random_qkv(operator, length=13)
    whole = output(operator, q, k, v)[:, :, :7]
    torch.testing.assert_close(output(operator, q[:, :, :7], k[:, :, :7], v[:, :, :7]), whole, rtol=1e-12, atol=1e-14)


@every_operator
@pytest.mark.parametrize("garbage", [0.0, 1e4, -1e30], ids=str)
def test_what_is_hidden_leaves_no_trace(operator: Operator, garbage: float) -> None:
    q, k, v = random_qkv(operator)
    mask = causal(13, 13).clone()
    mask[:, 4] = False
    clean = output(operator, q, k, v, mask=mask)
    k[:, :, 4], v[:, :, 4] = garbage, garbage
    assert (output(operator, q, k, v, mask=mask) == clean).all()


@every_operator
def test_a_query_that_sees_nothing_is_finite_and_has_finite_gradients(operator: Operator) -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv(operator))
    numbers = {name: value.requires_grad_() for name, value in random_numbers(operator).items()}
    mask = causal(13, 13).clone()
    mask[5] = False
    attended = attend(operator, q, k, v, mask=mask, numbers=numbers)
    attended.output.square().sum().backward()
    for x in (q, k, v, *numbers.values()):
        assert x.grad is None or x.grad.isfinite().all()
    ground = numbers.get("readout.ground_value", torch.zeros((1, 1, 1, 1), dtype=torch.float64))
    assert (attended.output[:, :, 5] == ground[..., 0, :].expand_as(attended.output[:, :, 5])).all()
    if attended.ground is not None:
        assert (attended.ground[:, :, 5] == 1).all()


@every_operator
def test_weights_and_ground_account_for_everything(operator: Operator) -> None:
    attended = attend(operator, *random_qkv(operator), numbers=random_numbers(operator))
    total = attended.weights.sum(-1, keepdim=True)
    if attended.ground is not None:
        total = total + attended.ground
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-12, atol=0)


@every_operator
def test_gradients_are_those_of_finite_differences(operator: Operator) -> None:
    inputs = [x[:1, :1].clone().requires_grad_() for x in random_qkv(operator, length=4)]
    numbers = {name: value[:, :1].clone().requires_grad_() for name, value in random_numbers(operator, heads=1).items()}

    def function(q: Tensor, k: Tensor, v: Tensor, *values: Tensor) -> Tensor:
        return attend(operator, q, k, v, numbers=dict(zip(numbers, values, strict=True))).output

    assert torch.autograd.gradcheck(function, (*inputs, *numbers.values()))


@every_operator
def test_batch_and_heads_may_be_permuted(operator: Operator) -> None:
    q, k, v = random_qkv(operator, heads=3)
    numbers = random_numbers(operator, heads=3)
    found = output(operator, q, k, v, numbers=numbers)
    batch, heads = [1, 0], [2, 0, 1]
    turned = {name: value[:, heads] for name, value in numbers.items()}
    again = output(operator, *(x[batch][:, heads] for x in (q, k, v)), numbers=turned)
    torch.testing.assert_close(again, found[batch][:, heads], rtol=1e-12, atol=1e-14)


@every_operator
def test_it_survives_json_with_its_key(operator: Operator) -> None:
    again = Operator.model_validate_json(operator.model_dump_json())
    assert again == operator
    assert again.key == operator.key


@every_operator
def test_every_path_that_can_run_it_agrees_with_the_definition(operator: Operator) -> None:
    q, k, v = random_qkv(operator)
    numbers = random_numbers(operator)
    able = [path for path in PATHS if path.cannot(operator) is None]
    assert able[-1].name == "reference"
    for mask in (None, causal(13, 13).flip(0)):
        expected = attend(operator, q, k, v, mask=mask, numbers=numbers).output
        for path in able:
            poisoned = path.run(operator, q, k, v, mask, numbers)
            torch.testing.assert_close(poisoned, expected, rtol=1e-10, atol=1e-12)


def refined(operator: Operator, name: str, per: str) -> Operator:
    stage, field = name.split(".")
    choice = getattr(operator, stage)
    return operator.changed(**{stage: choice.changed(**{field: getattr(choice, field).at(per)})})


REFINEMENTS = [
    pytest.param(operator, name, per, id=f"{label}-{name}-{per}")
    for operator, label in zip(EXAMPLES, IDS, strict=True)
    for name, number in operator.numbers().items()
    for per in granularities[1 : 3 if isinstance(number, Vector) else 4]
]


@pytest.mark.parametrize(("operator", "name", "per"), REFINEMENTS)
def test_a_finer_number_computes_the_same_function_at_step_0(operator: Operator, name: str, per: str) -> None:
    backbone = gpt2(layers=2, heads=2, width=2 * HEAD_WIDTH, max_positions=16)
    x = torch.randn(2, 11, 1, generator=torch.Generator().manual_seed(3))
    predictions = []
    for each in (refined(operator, name, "constant"), refined(operator, name, per)):
        model = Transformer(backbone, [each] * 2, inputs=Scalars(), seed=5)
        predictions.append(model(x))
    torch.testing.assert_close(*predictions, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("operator", "name", "per"), REFINEMENTS)
def test_a_finer_number_is_trained(operator: Operator, name: str, per: str) -> None:
    backbone = gpt2(layers=2, heads=2, width=2 * HEAD_WIDTH, max_positions=16)
    model = Transformer(backbone, [refined(operator, name, per)] * 2, inputs=Scalars(), seed=5)
    x = torch.randn(4, 11, 1, generator=torch.Generator().manual_seed(3))
    for layer in model.layers:  # larger logits than at the start, so that thresholds matter
        layer.attention.qkv.weight.data *= 30
    model(x).square().sum().backward()
    attribute = name.replace(".", "_")
    for layer in model.layers:
        numbers = layer.attention.numbers
        assert numbers.table[attribute].grad.abs().max() > 0
        if per == "query":
            assert numbers.projection[attribute].grad.abs().max() > 0
