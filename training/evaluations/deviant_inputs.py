"""Deviant inputs: the effect of one number far outside the training distribution on all later predictions.

    x_1 ~ N(0, sigma_first^2), the other x and the function as in training; or fixed prompts

Source: Scaled Signed Averaging (paper 003), table 5 and section 5.3. Its model answers the prompt
[100, -1.09, 0.78, 0.26, 0.42] of f(x) = x with [-1.21, -0.28, 2.15, 0.96, 0.65]. Least squares is right from the third
position on, whatever the first number is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from ablate.grid.spec import Spec
from ablate.training.evaluations.evaluation import Evaluation
from ablate.training.tasks.synthetic.in_context import SCORED_FROM, Sigmas, prompt
from ablate.training.tasks.synthetic.linear_functions import (
    LinearFunctions,
    errors_of,
    evaluation_draws,
    least_squares,
    predictions,
)
from ablate.training.tasks.task import Measurements, Predict, over_items


class Prompt(Spec):
    """The points x of one prompt, and the function slope * x + intercept."""

    x: Annotated[tuple[FiniteFloat, ...], Field(min_length=1)]
    """The points, in order."""
    slope: FiniteFloat = 1.0
    """a of f(x) = a x + b."""
    intercept: FiniteFloat = 0.0
    """b of f(x) = a x + b."""


class DeviantInputs(Evaluation):
    """The error of later predictions by spread of the first input, and the answers to fixed prompts.

    `functions` functions with `sequences` prompts of `points` points each are those of a `ShiftGrid` of the same sizes.
    """

    units: ClassVar[Mapping[str, str]] = {"deviant_mse": "unit of f(x), squared", "deviant_prediction": "unit of f(x)"}
    needs: ClassVar[tuple[type, str]] = (LinearFunctions, "the task linear_functions")
    kind: Literal["deviant_inputs"] = "deviant_inputs"
    sigma: Sigmas = (1.0, *map(float, range(10, 101, 10)))
    """Spreads of the first input, rising."""
    functions: PositiveInt = 100
    """Functions, which are the items of the standard error."""
    sequences: PositiveInt = 64
    """Prompts per function."""
    points: Annotated[int, Field(gt=SCORED_FROM)] = 40
    """Points of a prompt."""
    sample: NonNegativeInt = 0
    """Seed of the draw."""
    prompts: tuple[Prompt, ...] = (Prompt(x=(100.0, -1.09, 0.78, 0.26, 0.42)),)
    """Prompts whose answers are recorded position by position."""

    @property
    def length(self) -> int:
        return 2 * max(self.points, *(len(each.x) for each in self.prompts), 1) - 1

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        spreads = [{"sigma_first": sigma} for sigma in self.sigma]
        places = [_place(number, at) for number, each in enumerate(self.prompts, 1) for at in range(1, len(each.x) + 1)]
        return {
            **dict.fromkeys(("deviant_mse", "zero.deviant_mse", "least_squares.deviant_mse"), spreads),
            **dict.fromkeys(("deviant_prediction", "truth.deviant_prediction"), places),
        }

    def measure(self, predict: Predict, task: LinearFunctions) -> Iterator[Measurements]:
        """Yield `deviant_mse` at every {sigma_first}, over positions from the fourth on; items are functions.

        Also yield it for `zero.` and `least_squares.`, and `deviant_prediction` at every {prompt, position}, both from
        1, also for `truth.`.
        """
        for sigma in self.sigma:
            x, y = self._draw(task, sigma)
            point = {"sigma_first": sigma}
            errors = errors_of(predict, x.flatten(0, 1), y.flatten(0, 1)).view(x.shape)
            yield _scored_mean("deviant_mse", errors, point)
            yield _scored_mean("zero.deviant_mse", y.double().square(), point)
            yield _scored_mean("least_squares.deviant_mse", (least_squares(x, y) - y).square(), point)
        for number, named in enumerate(self.prompts, start=1):
            x = torch.tensor([named.x])
            y = named.slope * x + named.intercept
            for name, values in (("", predictions(predict, prompt(x, y))), ("truth.", y)):
                for position, value in enumerate(values[0].tolist(), start=1):
                    yield Measurements(f"{name}deviant_prediction", value, _place(number, position), 1, None)

    def _draw(
        self, task: LinearFunctions, sigma: float
    ) -> tuple[Float[Tensor, "functions sequences points"], Float[Tensor, "functions sequences points"]]:
        """Draw points x and values y. The first x has the spread `sigma`."""
        a, b, x = evaluation_draws(self.sample, self.functions, self.sequences, self.points)
        x = torch.cat((sigma * x[..., :1], task.sigma_x * x[..., 1:]), -1)
        return x, task.sigma_f * (a * x + b)


def _place(number: int, position: int) -> dict[str, float]:
    return {"prompt": number, "position": position}


def _scored_mean(
    name: str, errors: Float[Tensor, "functions sequences points"], point: Mapping[str, float]
) -> Measurements:
    return over_items(name, errors[..., SCORED_FROM:].mean((1, 2)), point)
