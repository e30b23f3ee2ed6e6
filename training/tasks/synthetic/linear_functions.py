"""Linear functions in context: a model reads x1, f(x1), x2, f(x2), ... and predicts f(x) at every x.

    f(x) = a x + b        a, b ~ N(0, sigma_f^2)  once per sequence,  x ~ N(0, sigma_x^2)
    loss = 1/k sum_i (prediction_i - f(x_i))^2    over all points, the unpredictable first included

Source: Scaled Signed Averaging (paper 003), eqs. 1-2, appendix A.1. Training draws from one distribution; evaluation
shifts both, on a grid of (sigma_x, sigma_f). Functions have no noise, as in the paper and its code.

`mse` is the released code's: the mean over positions from the fourth on. The text and eq. 2 score other positions and
eq. 2 has another constant; all of them follow from `squared_error`, which is recorded position by position. Two points
determine the function: from the third position on least squares makes no error but that of rounding to float32.
Predicting 0 costs sigma_f^2 (sigma_x^2 + 1).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Annotated, ClassVar, Literal, Self, final

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.spec import Spec
from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.synthetic.in_context import SCORED_FROM, InContext, Sigmas, prompt
from ablate.training.tasks.task import Batch, Data, Measurements, Predict, in_chunks, over_items

_ROWS = 128
"""Sequences per forward pass of an evaluation."""


class ShiftGrid(Spec):
    """Evaluation where inputs or functions are spread wider than in training.

    Functions and prompts are drawn once and shared by all models and seeds; a sigma only scales the draws.
    """

    sigma_x: Sigmas = tuple(map(float, range(1, 11)))
    """Spreads of x, rising."""
    sigma_f: Sigmas = tuple(map(float, range(1, 11)))
    """Spreads of the function's a and b, rising."""
    functions: PositiveInt = 100
    """Evaluated functions, the items of the standard error."""
    sequences: PositiveInt = 64
    """Prompts per function."""
    points: Annotated[int, Field(gt=SCORED_FROM)] = 40
    """Points of a prompt."""
    sample: NonNegativeInt = 0
    """Chooses another draw."""
    per_position: tuple[tuple[PositiveFloat, PositiveFloat], ...] | None = None
    """Conditions (sigma_x, sigma_f) whose error is recorded position by position; None: the first of the grid."""

    @model_validator(mode="after")
    def _conditions_are_told_apart(self) -> Self:
        named, there = self.per_position or (), self.conditions()
        for condition in named:
            if condition not in there:
                raise ValueError(
                    f"per_position names {condition}, which is no condition (sigma_x, sigma_f) of the grid; leave it "
                    "out"
                )
            if named.count(condition) > 1:
                raise ValueError(f"per_position names {condition} twice; leave one out")
        if self.per_position is not None:
            ordered = tuple(condition for condition in there if condition in named)
            self.set_normal_form(per_position=None if ordered == tuple(there[:1]) else ordered)
        return self

    def conditions(self) -> list[tuple[float, float]]:
        return list(product(self.sigma_x, self.sigma_f))

    def by_position(self) -> tuple[tuple[float, float], ...]:
        return ((self.sigma_x[0], self.sigma_f[0]),) if self.per_position is None else self.per_position


def _at(sigma_x: float, sigma_f: float) -> dict[str, float]:
    return {"sigma_x": sigma_x, "sigma_f": sigma_f}


class LinearFunctions(InContext):
    """Paper 003's task; every default is the paper's, without its curriculum (`curriculum=Curriculum()`)."""

    units: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("mse", "squared_error"), "unit of f(x), squared"),
        "relative_mse": "share of the error of predicting 0",
    }
    kind: Literal["linear_functions"] = "linear_functions"
    sigma_x: PositiveFloat = 1.0
    """Spread of x in training."""
    sigma_f: PositiveFloat = 1.0
    """Spread of a and b in training."""
    evaluation: ShiftGrid = ShiftGrid()
    """The conditions it is evaluated under."""

    @property
    def length(self) -> int:
        return 2 * max(self.points, self.evaluation.points) - 1

    @property
    def trained_length(self) -> int:
        return 2 * self.points - 1

    def measured_length(self, point: Mapping[str, float]) -> int:
        return 2 * int(point.get("position", self.evaluation.points)) - 1

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        grid = self.evaluation
        positions = range(1, grid.points + 1)
        conditions = [_at(*condition) for condition in grid.conditions()]
        by_position = [{**_at(*condition), "position": at} for condition in grid.by_position() for at in positions]
        names = ("mse", "relative_mse", "zero.mse", "least_squares.mse")
        return {**dict.fromkeys(names, conditions), "squared_error": by_position}

    def open(self) -> "LinearFunctionsData":
        return LinearFunctionsData(self)


@final
class LinearFunctionsData(Data):
    def __init__(self, task: LinearFunctions) -> None:
        self._task = task

    @property
    def constant_loss(self) -> float:
        return error_of_zero(self._task.sigma_x, self._task.sigma_f)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Draw prompts [B, 2n - 1, 1] and function values [B, n]; a shorter n has the same first points."""
        task = self._task
        draws = Draws(seed, "data", step, device=device).normal(task.batch, 2 + task.points)
        x = task.sigma_x * draws[:, 2 : 2 + task.points_at(step)]
        y = task.sigma_f * torch.addcmul(draws[:, 1:2], draws[:, :1], x)
        return Batch(prompt(x, y), y)

    def loss(
        self, outputs: Float[Tensor, "batch tokens 1"], targets: Float[Tensor, "batch points"]
    ) -> Float[Tensor, ""]:
        """Compute the mean squared error over all points."""
        return torch.nn.functional.mse_loss(outputs[:, ::2, 0], targets)

    def examples(self, count: int) -> Batch:
        task, grid = self._task, self._task.evaluation
        a, b, x = (each[:, 0] for each in evaluation_draws(grid.sample, count, 1, grid.points))
        x = task.sigma_x * x
        y = task.sigma_f * (a * x + b)
        return Batch(prompt(x, y), y)

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """`mse` at every {sigma_x, sigma_f}; `squared_error` at {sigma_x, sigma_f, position} where asked for.

        Positions count from 1. Items are functions; a function's value is the mean over its prompts. `relative_mse` is
        `mse` over what predicting 0 costs on average, 2 sigma_f^2 at sigma_x = 1. `zero.mse` and `least_squares.mse`
        are those of predictors without a model, on the same prompts.
        """
        grid = self._task.evaluation
        for sigma_x, sigma_f in grid.conditions():
            x, y = evaluation_points(grid, sigma_x, sigma_f)
            errors = errors_of(predict, x.flatten(0, 1), y.flatten(0, 1)).view(x.shape).mean(1)
            point = _at(sigma_x, sigma_f)
            scored = errors[:, SCORED_FROM:].mean(1)
            yield over_items("mse", scored, point)
            yield over_items("relative_mse", scored / error_of_zero(sigma_x, sigma_f), point)
            if (sigma_x, sigma_f) in grid.by_position():
                for position, error in enumerate(errors.unbind(1), start=1):
                    yield over_items("squared_error", error, {**point, "position": position})
        yield from _references(grid)


def error_of_zero(sigma_x: float, sigma_f: float) -> float:
    """Compute the mean error of predicting 0: E[(a x + b)^2] = sigma_f^2 (sigma_x^2 + 1)."""
    return sigma_f**2 * (sigma_x**2 + 1)


def least_squares(
    x: Float[Tensor, "*sequences points"], y: Float[Tensor, "*sequences points"]
) -> Float[Tensor, "*sequences points"]:
    """Predict by least squares at every x from the points before it, in float64.

    If several lines fit, the one with the smallest a^2 + b^2 is used: after one point, that is the posterior mean under
    a, b ~ N(0, sigma_f^2). The closed form uses running sums about the first point, so that on a line through whole
    numbers every prediction from the third on is exact.
    """
    x, y = x.double(), y.double()
    first_x, first_y = x[..., :1], y[..., :1]
    u, v = x - first_x, y - first_y
    count = torch.arange(x.shape[-1], dtype=torch.float64, device=x.device)
    some = count.clamp(min=1)
    before = (torch.nn.functional.pad(each[..., :-1].cumsum(-1), (1, 0)) for each in (u, v, u * u, u * v))
    u_sum, v_sum, uu, uv = before
    spread = count * uu - u_sum.square()
    slope = (count * uv - u_sum * v_sum) / torch.where(spread > 0, spread, 1)
    line = slope * u + (v_sum - slope * u_sum) / some + first_y
    flat = (v_sum / some + first_y) * (1 + first_x * x) / (1 + first_x.square())
    return torch.where(spread > 0, line, torch.where(count > 0, flat, 0))


@lru_cache(maxsize=8)
def _references(grid: ShiftGrid) -> tuple[Measurements, ...]:
    references = []
    for sigma_x, sigma_f in grid.conditions():
        x, y = evaluation_points(grid, sigma_x, sigma_f)
        for name, predicted in (("zero.mse", torch.zeros(())), ("least_squares.mse", least_squares(x, y))):
            errors = (predicted - y.double())[..., SCORED_FROM:].square()
            references.append(over_items(name, errors.mean((1, 2)), _at(sigma_x, sigma_f)))
    return tuple(references)


def evaluation_points(
    grid: ShiftGrid, sigma_x: float, sigma_f: float
) -> tuple[Float[Tensor, "functions sequences points"], Float[Tensor, "functions sequences points"]]:
    """Return the points x and values y of the evaluation."""
    a, b, x = evaluation_draws(grid.sample, grid.functions, grid.sequences, grid.points)
    x = sigma_x * x
    return x, sigma_f * (a * x + b)


def errors_of(
    predict: Predict, x: Float[Tensor, "batch points"], y: Float[Tensor, "batch points"]
) -> Float[Tensor, "batch points"]:
    """Compute squared errors at every position of prompts x, y, in float64 on the CPU."""
    return (predictions(predict, prompt(x, y)) - y).square()


def predictions(predict: Predict, prompts: Float[Tensor, "batch tokens 1"]) -> Float[Tensor, "batch points"]:
    """Compute a model's predictions at every x of prompts, in float64 on the CPU."""

    def reduce(_: slice, outputs: Tensor) -> Tensor:
        return outputs[:, ::2, 0].to("cpu", torch.float64)

    return torch.cat([each for _, each in in_chunks(predict, prompts, _ROWS, reduce)])


@lru_cache(maxsize=4)
def evaluation_draws(
    sample: int, functions: int, sequences: int, points: int
) -> tuple[Float[Tensor, "functions 1 1"], Float[Tensor, "functions 1 1"], Float[Tensor, "functions sequences points"]]:
    """Draw standard normal a, b [F, 1, 1] and x [F, S, P]; larger sizes keep the numbers of smaller ones."""
    with torch.inference_mode(mode=False):
        function, sequence = torch.arange(functions)[:, None, None], torch.arange(sequences)[:, None]
        a, b = (Draws(sample, "evaluation", "functions", name).normal_at(function) for name in ("slope", "intercept"))
        prompts = (function << 32) + sequence
        x = [Draws(sample, "evaluation", "points", place).normal_at(prompts) for place in range(points)]
        return a, b, torch.cat(x, -1)
