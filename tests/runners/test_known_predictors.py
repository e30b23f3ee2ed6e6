"""Evaluations without files: they record what they declare, and predictors whose errors are known have these errors."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate import (
    BoundaryValues,
    DeviantInputs,
    Grammar,
    Induction,
    LargeValue,
    LengthExtrapolation,
    LengthGrid,
    LinearFunctions,
    Prompt,
    Quantifiers,
    Stretch,
    Trial,
)
from ablate.grid.errors import SpecError
from ablate.training.evaluations import Evaluation
from ablate.training.tasks import Measurements, Task
from ablate.training.tasks.synthetic.linear_functions import least_squares
from ablate.training.tasks.synthetic.quantifiers import Quantifier, running
from ablate.variants import Scalars, gpt2

BOUNDARY = BoundaryValues(slopes=(-2, 1, 10), points=5, contexts=4)
DEVIANT = DeviantInputs(sigma=(1, 10, 50), functions=40, sequences=5, points=7)
LARGE = LargeValue(values=(-70, 70), numbers=12, sequences=4000)


def evaluate(
    spec: BoundaryValues | DeviantInputs | LargeValue,
    predict: Callable[[Tensor], Tensor],
    task: LinearFunctions | Quantifiers | None = None,
) -> dict[Any, Measurements]:
    task = task or LinearFunctions(points=spec.points)
    return {(each.name, *each.point.values()): each for each in spec.open(task).evaluate(predict)}


def remember(seen: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """A model that predicts its input, and appends it to `seen`."""
    return lambda inputs: seen.append(inputs) or inputs


def exact(inputs: Tensor) -> Tensor:
    """The line through the points before."""
    sequence = torch.cat((inputs[..., 0], torch.zeros(len(inputs), 1)), 1)
    predicted = torch.zeros_like(inputs, dtype=torch.float64)
    predicted[:, ::2, 0] = least_squares(sequence[:, ::2], sequence[:, 1::2])
    return predicted


@pytest.mark.parametrize("a", BOUNDARY.slopes)
def test_what_is_linear_has_no_boundary_and_a_bounded_predictor_is_found_out(a: float) -> None:
    rows = evaluate(BOUNDARY, exact)
    for x in BOUNDARY.x:
        assert rows["boundary_prediction", a, x].value == pytest.approx(a * x, rel=1e-3, abs=1e-3)
    assert rows["boundary_upper", a].value == pytest.approx(100 * abs(a), rel=1e-3)
    assert rows["boundary_lower", a].value == pytest.approx(-100 * abs(a), rel=1e-3)
    assert rows["boundary_slope", a].value == pytest.approx(1, rel=1e-3)
    assert rows["boundary_extent", a].value == math.inf
    rows = evaluate(BOUNDARY, lambda inputs: exact(inputs).clamp(-6, 8))
    assert rows["boundary_upper", a].value == pytest.approx(8)
    assert rows["boundary_lower", a].value == pytest.approx(-6)
    assert rows["boundary_slope", a].value == pytest.approx(0, abs=1e-6)
    off = [abs(x) for x in BOUNDARY.x if abs(min(max(a * x, -6), 8) - a * x) > 0.1 * abs(a) * max(abs(x), 1)]
    assert rows["boundary_extent", a].value == min(off)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_nan_follows_no_function(share: float) -> None:
    def unsure(inputs: Tensor) -> Tensor:
        outputs = exact(inputs)
        outputs[: round(share * len(outputs))] = math.nan
        return outputs

    rows = evaluate(BOUNDARY, unsure)
    for a in BOUNDARY.slopes:
        assert rows["boundary_extent", a].value == 0
        assert math.isnan(rows["boundary_upper", a].value)


def test_a_named_prompt_is_shown_as_it_is_written() -> None:
    """Its truth is the function; the values between the points are those of the function too."""
    seen: list[Tensor] = []
    paper = (100.0, -1.09, 0.78, 0.26, 0.42)
    spec = DEVIANT.changed(sigma=(1,), prompts=(Prompt(x=paper), Prompt(x=(3, 4), slope=2, intercept=1)))
    rows = evaluate(spec, lambda inputs: remember(seen)(inputs) + 1)
    assert seen[-2][0, :, 0].tolist() == pytest.approx([100, 100, -1.09, -1.09, 0.78, 0.78, 0.26, 0.26, 0.42])
    assert seen[-1][0, :, 0].tolist() == [3, 7, 4]
    assert [rows["deviant_prediction", 1, at].value for at in range(1, 6)] == pytest.approx([x + 1 for x in paper])
    assert [rows["truth.deviant_prediction", 1, at].value for at in range(1, 6)] == pytest.approx(list(paper))
    assert [rows["truth.deviant_prediction", 2, at].value for at in (1, 2)] == [7, 9]
    assert (spec.length, spec.changed(prompts=(Prompt(x=(1.0,) * 30),)).length) == (13, 59)


NAME = "large_value_error_rate"


def hidden(quantifier: Quantifier) -> Quantifiers:
    return Quantifiers(quantifier=quantifier, labels="hidden", sigma=2)


@pytest.mark.parametrize("quantifier", ["every", "some"])
def test_who_counts_every_number_makes_no_error_and_nan_is_never_right(quantifier: Quantifier) -> None:
    rows = evaluate(LARGE, lambda inputs: 2.0 * running(quantifier, inputs[..., 0])[..., None] - 1, hidden(quantifier))
    assert {each.value for (name, *_), each in rows.items() if name == NAME} == {0}
    rows = evaluate(LARGE, lambda inputs: torch.full_like(inputs, math.nan), hidden(quantifier))
    assert {each.value for (name, *_), each in rows.items() if name == NAME} == {1}
    rows = evaluate(LARGE, torch.ones_like, Quantifiers(quantifier=quantifier, labels="shown"))
    for value in LARGE.values:
        for decides in (0, 1):
            true, false = rows[f"always_true.{NAME}", value, decides], rows[f"always_false.{NAME}", value, decides]
            assert rows[NAME, value, decides] == true._replace(name=NAME)
            assert true.value + false.value == 1


def test_a_model_needs_positions_for_what_it_is_shown_and_hidden_labels_take_none(tiny: Trial) -> None:
    for long in (BoundaryValues(), DeviantInputs()):
        with pytest.raises(SpecError, match="up to 79 tokens and the model has 16 positions"):
            tiny.changed(evaluations=(long,))
    grid = LengthGrid(lengths=(5,), sigma=(1,), sequences=3)
    shown = Quantifiers(points=5, batch=4, evaluation=grid)
    for labels, fits in (("shown", 8), ("hidden", 16)):
        task = shown.changed(labels=labels)
        tiny.changed(task=task, evaluations=(LargeValue(numbers=fits, sequences=3),))
        with pytest.raises(SpecError, match="up to 17 tokens and the model has 16 positions"):
            tiny.changed(task=task, evaluations=(LargeValue(numbers=fits + 1, sequences=3),))


WINDOWS = LengthExtrapolation(lengths=(7, 20, 63), count=5, bucket=10, last=6)
CASES: Mapping[str, tuple[Evaluation, Task]] = {
    "boundary_values": (BoundaryValues(slopes=(-2, 1, 10), points=5, contexts=4), LinearFunctions(points=5)),
    "deviant_inputs": (DeviantInputs(sigma=(1, 10), functions=4, sequences=5, points=7), LinearFunctions(points=7)),
    "large_value": (LargeValue(values=(-70, 70), numbers=12, sequences=40), Quantifiers(labels="hidden")),
    "length_extrapolation": (WINDOWS, Grammar(context=16)),
    "stretched": (WINDOWS.changed(scaling=Stretch(factor=4, original=16)), Grammar(context=16)),
}


@pytest.mark.parametrize(("evaluation", "task"), CASES.values(), ids=CASES)
def test_it_records_what_it_declares_and_nothing_else(evaluation: Evaluation, task: Task) -> None:
    width = 1 if isinstance(task.inputs, Scalars) else task.inputs.vocabulary

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        return torch.zeros(*inputs.shape[:2], width)

    rows = [each for each in evaluation.open(task).evaluate(predict) if isinstance(each, Measurements)]
    declared = [(name, dict(point)) for name, points in evaluation.measures().items() for point in points]
    assert sorted(map(str, declared)) == sorted(str((row.name, dict(row.point))) for row in rows)
    assert Evaluation.members()[evaluation.label].model_validate(evaluation.data()) == evaluation
    with pytest.raises(ValueError, match=f"{evaluation.label} cannot evaluate Induction"):
        evaluation.check(Induction(), gpt2(layers=1, heads=1, width=8))
