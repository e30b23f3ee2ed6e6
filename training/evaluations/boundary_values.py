"""Boundary values: bounds of a model's predictions, however large f(x) = a x becomes.

    p(x)     the prediction at x after a context of points of f, spread as in training
    B+ = sup p(x),  B- = inf p(x)     over the sweep of x
    extent = min {|x| : |p(x) - a x| > tolerance |a| max(|x|, sigma_x)}

Source: Scaled Signed Averaging (paper 003), section 5 and figures 1 and 9, after Naim and Asher (2024). The paper does
not say with which context it sweeps. The tolerance is relative to |a x|, and to |a| sigma_x within the spread of
training, since ten per cent of a value near 0 is nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.validation import INCREASING
from ablate.training.evaluations.evaluation import Evaluation
from ablate.training.tasks.synthetic.in_context import Places, prompt
from ablate.training.tasks.synthetic.linear_functions import LinearFunctions, evaluation_draws, predictions
from ablate.training.tasks.task import Measurements, Predict, over_items

_OUTWARD = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0)


class BoundaryValues(Evaluation):
    """Predictions of a x over a sweep of x, and the point at which they stop following it."""

    units: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("boundary_prediction", "boundary_upper", "boundary_lower"), "unit of f(x)"),
        "boundary_slope": "share of a; 1 follows the function",
        "boundary_extent": "unit of x",
    }
    needs: ClassVar[tuple[type, str]] = (LinearFunctions, "the task linear_functions")
    kind: Literal["boundary_values"] = "boundary_values"
    slopes: Places = (1.0, 9.0, 10.0)
    """The a of f(x) = a x."""
    x: Annotated[tuple[FiniteFloat, ...], Field(min_length=2), INCREASING] = (
        *(-x for x in reversed(_OUTWARD)),
        *(0.0, *_OUTWARD),
    )
    """The sweep, rising."""
    points: Annotated[int, Field(ge=3)] = 40
    """Points of a prompt. The last is swept; two others determine the function."""
    contexts: PositiveInt = 16
    """Prompts per x, the same for all x and slopes except for the values of the function."""
    tolerance: PositiveFloat = 0.1
    """Largest error of a prediction that follows the function, relative to |a| max(|x|, sigma_x)."""
    sample: NonNegativeInt = 0
    """Seed of the contexts."""

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if 0 in self.slopes:
            raise ValueError(f"slopes={self.slopes} have 0, and errors are relative to a x; leave it out")
        return self

    @property
    def length(self) -> int:
        return 2 * self.points - 1

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        slopes = [{"a": a} for a in self.slopes]
        return {
            "boundary_prediction": [{"a": a, "x": x} for a in self.slopes for x in self.x],
            **dict.fromkeys(("boundary_upper", "boundary_lower", "boundary_slope", "boundary_extent"), slopes),
        }

    def measure(self, predict: Predict, task: LinearFunctions) -> Iterator[Measurements]:
        """Yield `boundary_prediction` at every {a, x}, and four summaries at every {a}; items are contexts.

        `boundary_upper` and `boundary_lower` are the greatest and the least prediction. `boundary_slope` is the slope
        of predictions at the largest |x|, over a: 1 follows the function, 0 is saturated. `boundary_extent` is the
        least |x| with a wrong or NaN mean prediction, infinite if there is none.
        """
        x = torch.tensor(self.x, dtype=torch.float64)
        far = (x[1:] + x[:-1]).abs()  # the outermost interval counts, or both if equally far
        for a in self.slopes:
            outputs, point = self._sweep(predict, task, a), {"a": a}
            for place, value in zip(self.x, outputs.unbind(1), strict=True):
                yield over_items("boundary_prediction", value, {"a": a, "x": place})
            yield over_items("boundary_upper", outputs.amax(1), point)
            yield over_items("boundary_lower", outputs.amin(1), point)
            slopes = (outputs.diff(dim=1) / x.diff())[:, far == far.max()].mean(1)
            yield over_items("boundary_slope", slopes / a, point)
            yield Measurements("boundary_extent", self._extent(outputs.mean(0), task, a, x), point, len(outputs), None)

    def _sweep(self, predict: Predict, task: LinearFunctions, a: float) -> Float[Tensor, "contexts x"]:
        context = task.sigma_x * evaluation_draws(self.sample, 1, self.contexts, self.points)[2][0]
        x = context[:, None].repeat(1, len(self.x), 1)
        x[:, :, -1] = torch.tensor(self.x)
        x = x.flatten(0, 1)
        return predictions(predict, prompt(x, a * x))[:, -1].view(self.contexts, len(self.x))

    def _extent(self, outputs: Float[Tensor, " x"], task: LinearFunctions, a: float, x: Float[Tensor, " x"]) -> float:
        bound = self.tolerance * abs(a) * x.abs().clamp(min=task.sigma_x)
        off = ~((outputs - a * x).abs() <= bound)  # NaN is off
        return float(x[off].abs().min()) if off.any() else math.inf
