"""Deviant inputs: what is shown, and the errors of predictors whose errors are known."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid.errors import SpecError
from runners import DeviantInputs, LinearFunctions, Prompt, ShiftGrid, Text, Trial
from runners.tasks import Measurements
from runners.tasks.synthetic.linear_functions import squared_errors

SMALL = DeviantInputs(sigma=(1, 10, 50), functions=40, sequences=5, points=7)
TASK = LinearFunctions(points=7)


def nothing(inputs: Tensor) -> Tensor:
    """Predicts 0."""
    return torch.zeros_like(inputs)


def repeat(inputs: Tensor) -> Tensor:
    """Predicts the input itself."""
    return inputs


def evaluate(
    spec: DeviantInputs, predict: Callable[[Tensor], Tensor], task: LinearFunctions = TASK
) -> dict[Any, Measurements]:
    return {(each.name, *each.point.values()): each for each in spec.open(task).evaluate(predict)}


@pytest.mark.parametrize(("sigma_x", "sigma_f"), [(1.0, 1.0), (2.0, 3.0)])
def test_only_the_first_input_is_spread_differently(sigma_x: float, sigma_f: float) -> None:
    seen: list[Tensor] = []

    def remember(inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return nothing(inputs)

    spec = SMALL.changed(sigma=(50,), functions=2000, sequences=2, prompts=())
    evaluate(spec, remember, LinearFunctions(sigma_x=sigma_x, sigma_f=sigma_f))
    x, y = torch.cat(seen)[:, ::2, 0], torch.cat(seen)[:, 1::2, 0]
    assert x[:, 0].std() == pytest.approx(50, rel=0.05)
    assert x[:, 1:].std(0).tolist() == pytest.approx([sigma_x] * 6, rel=0.05)
    slope, usual = (y[:, 1] - y[:, 0]) / (x[:, 1] - x[:, 0]), torch.isfinite(x[:, 0])
    assert slope[usual].quantile(0.75) - slope[usual].quantile(0.25) == pytest.approx(1.349 * sigma_f, rel=0.1)


def test_at_the_spread_of_training_it_is_the_error_of_the_task() -> None:
    grid = ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=40, sequences=5, points=7)
    error = evaluate(SMALL, repeat)["deviant_mse", 1.0]
    expected = squared_errors(repeat, grid, 1, 1)[:, 3:].mean(1)
    assert error.value == pytest.approx(expected.mean().item())
    assert error.se_items == pytest.approx(expected.std().item() / 40**0.5)
    assert error.items == 40


def test_references_are_blind_to_the_first_input_or_exact() -> None:
    rows = evaluate(SMALL, nothing)
    for sigma in SMALL.sigma:
        zero = rows["zero.deviant_mse", sigma]
        assert zero.value == pytest.approx(rows["zero.deviant_mse", 1.0].value)
        assert rows["deviant_mse", sigma].value == pytest.approx(zero.value)
        assert rows["least_squares.deviant_mse", sigma].value < 1e-7 * zero.value


def test_a_named_prompt_is_shown_as_it_is_written() -> None:
    """Its truth is the function; the values between the points are those of the function too."""
    seen: list[Tensor] = []

    def remember(inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return inputs + 1

    paper = (100.0, -1.09, 0.78, 0.26, 0.42)
    spec = SMALL.changed(sigma=(1,), prompts=(Prompt(x=paper), Prompt(x=(3, 4), slope=2, intercept=1)))
    rows = evaluate(spec, remember)
    assert seen[-2][0, :, 0].tolist() == pytest.approx([100, 100, -1.09, -1.09, 0.78, 0.78, 0.26, 0.26, 0.42])
    assert seen[-1][0, :, 0].tolist() == [3, 7, 4]
    assert [rows["deviant_prediction", 1, at].value for at in range(1, 6)] == pytest.approx([x + 1 for x in paper])
    assert [rows["truth.deviant_prediction", 1, at].value for at in range(1, 6)] == pytest.approx(list(paper))
    assert [rows["truth.deviant_prediction", 2, at].value for at in (1, 2)] == [7, 9]
    assert DeviantInputs().prompts == (Prompt(x=paper),)
    assert (spec.length, spec.changed(prompts=(Prompt(x=(1.0,) * 30),)).length) == (13, 59)


def test_bad_input_is_refused(tiny: Trial) -> None:
    with pytest.raises(ValidationError, match="rises from value to value"):
        DeviantInputs(sigma=(2, 1))
    with pytest.raises(ValidationError, match="finite number"):
        Prompt(x=(float("nan"),))
    with pytest.raises(ValidationError, match="at least 1 item"):
        Prompt(x=())
    with pytest.raises(SpecError, match="up to 79 tokens and the model has 16 positions"):
        tiny.changed(evaluations=(DeviantInputs(),))
    text = Text(content_hash="0" * 32, source="/nowhere/text.txt", context=8)
    with pytest.raises(SpecError, match="needs the task linear_functions; got Text"):
        tiny.changed(task=text, evaluations=(DeviantInputs(points=5),))
