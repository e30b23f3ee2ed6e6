"""Boundary values: a predictor with known bounds has those bounds, and a linear one has none."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid.errors import SpecError
from runners import BoundaryValues, LinearFunctions, Text, Trial
from runners.tasks import Measurements
from runners.tasks.synthetic.linear_functions import least_squares

SMALL = BoundaryValues(slopes=(-2, 1, 10), points=5, contexts=4)
TASK = LinearFunctions(points=5)


def exact(inputs: Tensor) -> Tensor:
    """The line through the points before."""
    sequence = torch.cat((inputs[..., 0], torch.zeros(len(inputs), 1)), 1)
    predicted = torch.zeros_like(inputs, dtype=torch.float64)
    predicted[:, ::2, 0] = least_squares(sequence[:, ::2], sequence[:, 1::2])
    return predicted


def clip(inputs: Tensor) -> Tensor:
    """The same, never under -6 or over 8."""
    return exact(inputs).clamp(-6, 8)


def evaluate(
    spec: BoundaryValues, predict: Callable[[Tensor], Tensor], task: LinearFunctions = TASK
) -> dict[Any, Measurements]:
    return {(each.name, *each.point.values()): each for each in spec.open(task).evaluate(predict)}


@pytest.mark.parametrize("a", SMALL.slopes)
def test_what_is_linear_has_no_boundary(a: float) -> None:
    rows = evaluate(SMALL, exact)
    for x in SMALL.x:
        assert rows["boundary_prediction", a, x].value == pytest.approx(a * x, rel=1e-3, abs=1e-3)
    assert rows["boundary_upper", a].value == pytest.approx(100 * abs(a), rel=1e-3)
    assert rows["boundary_lower", a].value == pytest.approx(-100 * abs(a), rel=1e-3)
    assert rows["boundary_slope", a].value == pytest.approx(1, rel=1e-3)
    assert rows["boundary_extent", a].value == math.inf


@pytest.mark.parametrize("a", SMALL.slopes)
def test_a_bounded_predictor_is_found_out(a: float) -> None:
    rows = evaluate(SMALL, clip)
    assert rows["boundary_upper", a].value == pytest.approx(8)
    assert rows["boundary_lower", a].value == pytest.approx(-6)
    assert rows["boundary_slope", a].value == pytest.approx(0, abs=1e-6)
    off = [abs(x) for x in SMALL.x if abs(min(max(a * x, -6), 8) - a * x) > 0.1 * abs(a) * max(abs(x), 1)]
    assert rows["boundary_extent", a].value == min(off)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_nan_follows_no_function(share: float) -> None:
    """NaN in all contexts, or in one of four."""

    def unsure(inputs: Tensor) -> Tensor:
        outputs = exact(inputs)
        outputs[: round(share * len(outputs))] = math.nan
        return outputs

    rows = evaluate(SMALL, unsure)
    for a in SMALL.slopes:
        assert rows["boundary_extent", a].value == 0
        assert math.isnan(rows["boundary_upper", a].value)


def test_near_zero_the_tolerance_is_that_of_the_spread_of_training() -> None:
    """An error of 0.45 everywhere is too much for 0.1 |a| sigma_x = 0.1 and not for 0.5."""

    def shift(inputs: Tensor) -> Tensor:
        return exact(inputs) + 0.45

    spec = SMALL.changed(slopes=(1, 5))
    assert [evaluate(spec, shift)["boundary_extent", a].value for a in (1, 5)] == [0, math.inf]
    wide = evaluate(spec, shift, LinearFunctions(points=5, sigma_x=5))
    assert wide["boundary_extent", 1].value == math.inf


def test_only_the_last_point_is_swept_and_contexts_are_those_of_training() -> None:
    seen: list[Tensor] = []

    def remember(inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return inputs

    spec = SMALL.changed(contexts=300, x=(-3, 0, 50), slopes=(9,))
    evaluate(spec, remember, LinearFunctions(points=5, sigma_x=2))
    prompts = torch.cat(seen)[..., 0].view(300, 3, 9)
    assert torch.equal(prompts[:, 0, :-1], prompts[:, 2, :-1])
    assert prompts[:, :, -1].unique(dim=0).tolist() == [[-3, 0, 50]]
    assert torch.equal(prompts[..., 1::2], 9 * prompts[..., :-1:2])
    assert prompts[:, 0, :-1:2].std() == pytest.approx(2, rel=0.1)


def test_the_slope_of_a_sweep_to_one_side_is_that_of_its_far_end() -> None:
    def root(inputs: Tensor) -> Tensor:
        return inputs.clamp(min=0).sqrt()

    rows = evaluate(SMALL.changed(slopes=(2,), x=(0, 1, 9, 25)), root)
    assert rows["boundary_slope", 2.0].value == pytest.approx((5 - 3) / 16 / 2)
    assert rows["boundary_upper", 2.0].se_items == 0


def test_bad_input_is_refused(tiny: Trial) -> None:
    for fields, said in (
        ({"x": (1, 1)}, "rises from value to value"),
        ({"slopes": (2, 1)}, "rises from value to value"),
        ({"slopes": (0, 1)}, "slopes are not 0"),
        ({"points": 2}, "greater than or equal to 3"),
        ({"x": (1,)}, "at least 2 items"),
        ({"x": (0, math.inf)}, "finite number"),
    ):
        with pytest.raises(ValidationError, match=said):
            BoundaryValues.model_validate(fields)
    with pytest.raises(SpecError, match="up to 79 tokens and the model has 16 positions"):
        tiny.changed(evaluations=(BoundaryValues(),))
    text = Text(content_hash="0" * 32, source="/nowhere/text.txt", context=8)
    with pytest.raises(SpecError, match="needs the task linear_functions; got Text"):
        tiny.changed(task=text, evaluations=(SMALL,))
