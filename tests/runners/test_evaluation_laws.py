"""Laws of every evaluation without files: it records what it declares, is read back, and refuses other tasks."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from runners import (
    BoundaryValues,
    DeviantInputs,
    Grammar,
    Induction,
    LargeValue,
    LengthExtrapolation,
    LinearFunctions,
    Quantifiers,
    Stretch,
)
from runners.evaluations import Evaluation
from runners.tasks import Measurements, Task
from variants import Scalars, gpt2

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
    with pytest.raises(ValueError, match=f"{evaluation.label} needs .* got Induction"):
        evaluation.check(Induction(), gpt2(layers=1, heads=1, width=8))
