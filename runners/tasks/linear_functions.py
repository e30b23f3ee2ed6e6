"""Linear functions in context: a model reads x1, f(x1), x2, f(x2), ... and predicts f(x) at every x.

    f(x) = a x + b        a, b ~ N(0, sigma_f^2)  once per sequence,  x ~ N(0, sigma_x^2)
    loss = 1/k sum_i (prediction_i - f(x_i))^2    over all points, the unpredictable first included

Source: Scaled Signed Averaging (paper 003), eqs. 1-2, appendix A.1. Training draws from one distribution; evaluation
shifts both, on a grid of (sigma_x, sigma_f). As in the paper's released code, the mean squared error is over positions
from the fourth on, where two points determine the function; eq. 2 as printed has another constant factor. The squared
error of each position is recorded too, so any other choice can be computed from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import Annotated, Literal, Self, final

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from grid.spec import Spec
from runners.tasks.draws import CPU, Draws
from runners.tasks.task import Batch, Data, Measured, Predict, Task, in_chunks, over_items
from variants import Scalars
from variants.seeding import generator

SCORED_FROM = 3
"""Position, counted from 0, from which errors enter the mean squared error."""

_ROWS = 128
"""Sequences per forward pass of an evaluation."""

Sigmas = Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]


class Curriculum(Spec):
    """Sequences of `start` points, `increment` more after every `every` steps, until the task's full length.

    The defaults are those of paper 003's code; its text says 3 points at the start.
    """

    start: PositiveInt = 11
    every: PositiveInt = 2000
    increment: PositiveInt = 2

    def points(self, step: int) -> int:
        """The number of points at training step `step`, counted from 1, before the task's own limit."""
        return self.start + self.increment * ((step - 1) // self.every)


class ShiftGrid(Spec):
    """Evaluation where inputs or functions are spread wider than in training.

    `functions` functions with `sequences` prompts each are drawn once and shared by all models and seeds; a sigma only
    scales the draws. `sample` chooses another draw. `per_position` names the conditions (sigma_x, sigma_f) whose error
    is recorded position by position; None is the first of the grid.
    """

    sigma_x: Sigmas = tuple(map(float, range(1, 11)))
    sigma_f: Sigmas = tuple(map(float, range(1, 11)))
    functions: PositiveInt = 100
    sequences: PositiveInt = 64
    points: Annotated[int, Field(gt=SCORED_FROM)] = 40
    sample: NonNegativeInt = 0
    per_position: tuple[tuple[PositiveFloat, PositiveFloat], ...] | None = None

    @model_validator(mode="after")
    def _conditions_are_told_apart(self) -> Self:
        for name in ("sigma_x", "sigma_f"):
            sigmas = getattr(self, name)
            if any(low >= high for low, high in pairwise(sigmas)):
                raise ValueError(f"{name} rises from value to value; got {sigmas}")
        for condition in self.per_position or ():
            if condition not in self.conditions():
                raise ValueError(
                    f"per_position names conditions (sigma_x, sigma_f) of the grid; got {condition}, "
                    f"with sigma_x {self.sigma_x} and sigma_f {self.sigma_f}"
                )
        return self

    def conditions(self) -> list[tuple[float, float]]:
        """Every (sigma_x, sigma_f)."""
        return list(product(self.sigma_x, self.sigma_f))

    def by_position(self) -> tuple[tuple[float, float], ...]:
        """The conditions recorded position by position."""
        return ((self.sigma_x[0], self.sigma_f[0]),) if self.per_position is None else self.per_position


def _at(sigma_x: float, sigma_f: float) -> dict[str, float]:
    return {"sigma_x": sigma_x, "sigma_f": sigma_f}


class LinearFunctions(Task):
    """Paper 003's task; every default is the paper's, without its curriculum (`curriculum=Curriculum()`)."""

    kind: Literal["linear_functions"] = "linear_functions"
    batch: PositiveInt = 64
    points: PositiveInt = 40
    sigma_x: PositiveFloat = 1.0
    sigma_f: PositiveFloat = 1.0
    curriculum: Curriculum | None = None
    evaluation: ShiftGrid = ShiftGrid()

    @model_validator(mode="after")
    def _curriculum_leads_somewhere(self) -> Self:
        if self.curriculum is not None and self.curriculum.start >= self.points:
            raise ValueError(
                f"a curriculum starts with fewer points than the task's {self.points}; got {self.curriculum.start}; "
                "lower curriculum.start or use curriculum=None"
            )
        return self

    @property
    def inputs(self) -> Scalars:
        return Scalars(1)

    @property
    def length(self) -> int:
        return 2 * max(self.points, self.evaluation.points) - 1

    def points_at(self, step: int) -> int:
        """The number of points at training step `step`, counted from 1."""
        return self.points if self.curriculum is None else min(self.points, self.curriculum.points(step))

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        grid = self.evaluation
        positions = range(1, grid.points + 1)
        return {
            "mse": [_at(*condition) for condition in grid.conditions()],
            "squared_error": [
                {**_at(*condition), "position": position} for condition in grid.by_position() for position in positions
            ],
        }

    def open(self) -> "LinearFunctionsData":
        return LinearFunctionsData(self)


@final
class LinearFunctionsData(Data):
    """Draws prompts."""

    def __init__(self, task: LinearFunctions) -> None:
        self._task = task

    @property
    def constant_loss(self) -> float:
        """E[(a x + b)^2] = sigma_f^2 (sigma_x^2 + 1): the best constant is 0."""
        return self._task.sigma_f**2 * (self._task.sigma_x**2 + 1)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Prompts [B, 2n - 1, 1] and function values [B, n]; a shorter n has the same first points."""
        task = self._task
        draws = Draws(seed, "data", step, device=device).normal(task.batch, 2 + task.points)
        x = task.sigma_x * draws[:, 2 : 2 + task.points_at(step)]
        y = task.sigma_f * torch.addcmul(draws[:, 1:2], draws[:, :1], x)
        return Batch(prompt(x, y), y)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error over all points; outputs [B, 2n - 1, 1], targets [B, n]."""
        return torch.nn.functional.mse_loss(outputs[:, ::2, 0], targets)

    def examples(self, count: int) -> Batch:
        """Prompts of the evaluation's first functions, spread as in training."""
        grid = self._task.evaluation
        a, b, x = _evaluation_draws(grid.sample, grid.functions, grid.sequences, grid.points)
        x = self._task.sigma_x * x[:count, 0]
        y = self._task.sigma_f * (a[:count, 0] * x + b[:count, 0])
        return Batch(prompt(x, y), y)

    def evaluate(self, predict: Predict) -> Iterator[Measured]:
        """`mse` at every {sigma_x, sigma_f}; `squared_error` at {sigma_x, sigma_f, position} where asked for.

        Positions count from 1. Items are functions; a function's value is the mean over its prompts.
        """
        grid = self._task.evaluation
        for sigma_x, sigma_f in grid.conditions():
            errors = squared_errors(predict, grid, sigma_x, sigma_f)
            point = _at(sigma_x, sigma_f)
            yield over_items("mse", errors[:, SCORED_FROM:].mean(1), point)
            if (sigma_x, sigma_f) in grid.by_position():
                for position, error in enumerate(errors.unbind(1), start=1):
                    yield over_items("squared_error", error, {**point, "position": position})


def prompt(x: Tensor, y: Tensor) -> Tensor:
    """x1, y1, x2, y2, ..., xn as scalars [B, 2n - 1, 1] from x and y [B, n]; yn predicts nothing and is left out."""
    return torch.stack((x, y), dim=-1).flatten(1)[:, :-1, None]


def squared_errors(predict: Predict, grid: ShiftGrid, sigma_x: float, sigma_f: float) -> Tensor:
    """The squared error of every function at every position, mean over its prompts: float64 [functions, points]."""
    a, b, x = _evaluation_draws(grid.sample, grid.functions, grid.sequences, grid.points)
    x = sigma_x * x
    y = sigma_f * (a * x + b)
    inputs, targets = prompt(x.flatten(0, 1), y.flatten(0, 1)), y.flatten(0, 1)
    errors = torch.empty(targets.shape, dtype=torch.float64)
    for rows, outputs in in_chunks(predict, inputs, _ROWS):
        errors[rows] = (outputs[:, ::2, 0].to("cpu", torch.float64) - targets[rows]).square()
    return errors.view(x.shape).mean(1)


@lru_cache(maxsize=4)
def _evaluation_draws(sample: int, functions: int, sequences: int, points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Standard draws a, b [F, 1, 1] and x [F, S, P]; more of anything leaves the functions as they were."""
    with torch.inference_mode(mode=False):
        a, b = torch.randn(functions, 2, generator=generator(sample, "evaluation", "functions")).unbind(1)
        x = torch.randn(functions, sequences, points, generator=generator(sample, "evaluation", "points"))
        return a[:, None, None], b[:, None, None], x
