"""One large value: what is shown, and the errors of predictors whose errors are known."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid.errors import SpecError
from runners import LargeValue, LengthGrid, Quantifiers, Trial
from runners.tasks import Measurements
from runners.tasks.synthetic.quantifiers import Quantifier, running

SMALL = LargeValue(values=(-70, 70), numbers=12, sequences=4000)
NAME = "large_value_error_rate"


def hidden(quantifier: Quantifier) -> Quantifiers:
    return Quantifiers(quantifier=quantifier, labels="hidden", sigma=2)


def evaluate(task: Quantifiers, predict: Callable[[Tensor], Tensor]) -> dict[Any, Measurements]:
    return {(each.name, *each.point.values()): each for each in SMALL.open(task).evaluate(predict)}


@pytest.mark.parametrize("quantifier", ["every", "some"])
def test_who_counts_every_number_makes_no_error(quantifier: Quantifier) -> None:
    rows = evaluate(hidden(quantifier), lambda inputs: 2.0 * running(quantifier, inputs[..., 0])[..., None] - 1)
    assert {each.value for (name, *_), each in rows.items() if name == NAME} == {0}


def test_who_looks_at_the_large_number_alone_errs_where_it_does_not_decide() -> None:
    """As paper 003 says of softmax: 70 makes it say "every"; random numbers decide with 1 - 2^-11 before."""
    rows = evaluate(hidden("every"), lambda inputs: inputs)
    assert rows[NAME, 70, 0].value == pytest.approx(1, abs=0.002)
    assert [rows[NAME, value, 1].value for value in (-70, 70)] == [0, 0]
    assert rows[NAME, -70, 0].value == 0
    rows = evaluate(hidden("some"), lambda inputs: inputs)
    assert rows[NAME, -70, 0].value == pytest.approx(1, abs=0.002)
    assert [rows[NAME, value, 1].value for value in (-70, 70)] == [0, 0]


@pytest.mark.parametrize("quantifier", ["every", "some"])
def test_nan_is_never_right(quantifier: Quantifier) -> None:
    rows = evaluate(hidden(quantifier), lambda inputs: torch.full_like(inputs, math.nan))
    assert {each.value for (name, *_), each in rows.items() if name == NAME} == {1}


@pytest.mark.parametrize("labels", ["shown", "hidden"])
def test_constants_are_recorded_beside(labels: str) -> None:
    task = Quantifiers.model_validate({"labels": labels})
    rows = evaluate(task, torch.ones_like)
    for value in SMALL.values:
        for decides in (0, 1):
            true, false = rows[f"always_true.{NAME}", value, decides], rows[f"always_false.{NAME}", value, decides]
            assert rows[NAME, value, decides] == true._replace(name=NAME)
            assert true.value + false.value == 1
    assert [rows[f"always_true.{NAME}", value, 1].value for value in SMALL.values] == [1, 0]


def test_the_other_numbers_are_those_of_training() -> None:
    judge = SMALL.open(hidden("every"))
    free, decided = judge.sequences(70, decides=False), judge.sequences(70, decides=True)
    assert free[:, -1].tolist() == [70] * 4000
    assert free[:, :-1].std() == pytest.approx(2, rel=0.02)
    assert torch.equal(decided[:, :-1], free[:, :-1].abs())
    assert torch.equal(SMALL.open(hidden("some")).sequences(-70, decides=True)[:, :-1], -free[:, :-1].abs())


def test_a_model_needs_positions_for_what_it_is_shown_and_hidden_labels_take_none(tiny: Trial) -> None:
    grid = LengthGrid(lengths=(5,), sigma=(1,), sequences=3)
    shown = Quantifiers(points=5, batch=4, evaluation=grid)
    for labels, fits in (("shown", 8), ("hidden", 16)):
        task = shown.changed(labels=labels)
        tiny.changed(task=task, evaluations=(LargeValue(numbers=fits, sequences=3),))
        with pytest.raises(SpecError, match="up to 17 tokens and the model has 16 positions"):
            tiny.changed(task=task, evaluations=(LargeValue(numbers=fits + 1, sequences=3),))


def test_bad_input_is_refused(tiny: Trial) -> None:
    with pytest.raises(ValidationError, match="rises from value to value"):
        LargeValue(values=(2, 1))
    with pytest.raises(SpecError, match="needs the task quantifiers; got LinearFunctions"):
        tiny.changed(evaluations=(LargeValue(numbers=5),))
