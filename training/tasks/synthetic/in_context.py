"""Points of a function in one prompt, x1, y1, x2, y2, ..., xn: what tasks in context share.

Source: Scaled Signed Averaging (paper 003), appendix A.1, whose tasks have one number per position.
"""

import math
from typing import Annotated, Self

import torch
from jaxtyping import Float
from pydantic import Field, FiniteFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.spec import Spec
from ablate.grid.validation import INCREASING
from ablate.training.tasks.task import Task
from ablate.variants import Scalars

SCORED_FROM = 3
"""Position, counted from 0, from which errors enter the measures of the paper's code."""

Sigmas = Annotated[tuple[PositiveFloat, ...], Field(min_length=1), INCREASING]
Places = Annotated[tuple[FiniteFloat, ...], Field(min_length=1), INCREASING]


class Curriculum(Spec):
    """Sequences of `start` points, `increment` more after every `every` steps, until the task's full length.

    The defaults are those of paper 003's code; its text says 3 points at the start. A trial that ends before the full
    length is refused: with the defaults, 40 points come at step 30,001.
    """

    start: PositiveInt = 11
    """Points of the first sequences."""
    every: PositiveInt = 2000
    """Steps between two lengths."""
    increment: PositiveInt = 2
    """Points that each length has more than the one before."""

    def points(self, step: int) -> int:
        """Return the points at training step `step`, counted from 1, before the task's own limit."""
        return self.start + self.increment * ((step - 1) // self.every)


class InContext(Task):
    """A task whose sequences are points; with a curriculum, shorter ones come first."""

    batch: PositiveInt = 64
    points: PositiveInt = 40
    """Points of a training sequence."""
    curriculum: Curriculum | None = None
    """Shorter sequences first; None: all have `points`."""

    @model_validator(mode="after")
    def _curriculum_leads_somewhere(self) -> Self:
        if self.curriculum is not None and self.curriculum.start >= self.points:
            raise ValueError(f"curriculum.start={self.curriculum.start} is not below {self.points} points; lower it")
        return self

    @property
    def inputs(self) -> Scalars:
        return Scalars(1)

    def check_steps(self, steps: int) -> None:
        if self.curriculum is not None and self.points_at(steps) < self.points:
            missing = self.points - self.curriculum.start
            enough = 1 + self.curriculum.every * math.ceil(missing / self.curriculum.increment)
            raise ValueError(
                f"the curriculum does not reach {self.points} points in {steps} steps; train {enough} steps"
            )

    def points_at(self, step: int) -> int:
        return self.points if self.curriculum is None else min(self.points, self.curriculum.points(step))


def prompt(x: Float[Tensor, "batch points"], y: Float[Tensor, "batch points"]) -> Float[Tensor, "batch 2*points-1 1"]:
    """Interleave x and y: x1, y1, x2, y2, ..., xn as scalars; yn is left out."""
    return torch.stack((x, y), dim=-1).flatten(1)[:, :-1, None]
