"""One large value: whether one number far from the others makes a model forget the others.

    x_1, ..., x_{n-1} as in training, x_n = value;   is every (some) number positive?

Source: Scaled Signed Averaging (paper 003), section 5 and figure 2. There, a last number of 70 makes a softmax model
say that every number is positive. Other numbers settle the answer of nearly all random sequences. So sequences that the
last number decides are evaluated separately: all others are positive for `every`, none for `some`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from ablate.training.evaluations.evaluation import Evaluation
from ablate.training.tasks.synthetic.in_context import Places
from ablate.training.tasks.synthetic.quantifiers import Quantifiers, answers_of, evaluation_draws, logits_of, running
from ablate.training.tasks.task import Measurements, Predict, Task, over_items


class LargeValue(Evaluation):
    """The error of the last answer by value of the last number."""

    units: ClassVar[Mapping[str, str]] = {"large_value_error_rate": "share of 1"}
    needs: ClassVar[tuple[type, str]] = (Quantifiers, "the task quantifiers")
    kind: Literal["large_value"] = "large_value"
    values: Places = (-100.0, -70.0, -30.0, -10.0, 10.0, 30.0, 70.0, 100.0)
    """Values of the last number, rising."""
    numbers: Annotated[int, Field(ge=2)] = 40
    """Numbers of a sequence with the large one. With labels in between they take nearly twice as many positions."""
    sequences: PositiveInt = 512
    """Sequences per point."""
    sample: NonNegativeInt = 0
    """Seed of the draw."""

    @property
    def length(self) -> int:
        return 2 * self.numbers - 1

    def length_on(self, task: Task) -> int:
        return task.tokens(self.numbers) if isinstance(task, Quantifiers) else self.length

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        points = [_point(value, decides) for value in self.values for decides in (False, True)]
        names = ("large_value_error_rate", "always_true.large_value_error_rate", "always_false.large_value_error_rate")
        return dict.fromkeys(names, points)

    def measure(self, predict: Predict, task: Quantifiers) -> Iterator[Measurements]:
        """Yield `large_value_error_rate` at every {value, decides}, also for `always_true.` and `always_false.`.

        `decides` is 1 if the last number decides the answer, and 0 for random sequences. Items are sequences. NaN is
        wrong.
        """
        for value in self.values:
            for decides in (False, True):
                x = self._draw(task, value, decides=decides)
                label = running(task.quantifier, x)[:, -1]
                point = _point(value, decides)
                answer = answers_of(logits_of(predict, task, x)[:, -1], label)
                yield over_items("large_value_error_rate", (answer != label).double(), point)
                yield over_items("always_true.large_value_error_rate", (~label).double(), point)
                yield over_items("always_false.large_value_error_rate", label.double(), point)

    def _draw(self, task: Quantifiers, value: float, *, decides: bool) -> Float[Tensor, "sequences numbers"]:
        x = task.sigma * evaluation_draws(self.sample, self.sequences, self.numbers - 1)
        if decides:
            x = x.abs() if task.quantifier == "every" else -x.abs()
        return torch.cat((x, torch.full_like(x[:, :1], value)), 1)


def _point(value: float, decides: bool) -> dict[str, float]:  # noqa: FBT001
    return {"value": value, "decides": float(decides)}
