"""The measure of a grid: one evaluation, at one point, on one scale; and what says that a run learned."""

from typing import Annotated, Literal

from pydantic import Field

from ablate.grid.frozen import FROZEN, FrozenDict
from ablate.grid.spec import Label, Name, Spec


class Measure(Spec):
    """The number that a grid compares, and the smallest difference that counts.

    `name` is an evaluation's name and `point` a point of its evaluation grid (`{"sigma_x": 1, "sigma_f": 5}`).

    `scale` says how variants are compared. "log": by ratios of positive values. "logit": by odds ratios of rates
    between 0 and 1, such as an accuracy. "linear": by differences.

    `rope` is the region of practical equivalence. On the log scale 0.05 means within 5 %. On the logit scale 0.05 is
    1.2 points at 50 % and 0.44 at 90 %. On the linear scale it has the measure's unit. `alpha` is the family-wise
    error rate of the verdicts.
    """

    name: Name
    point: Annotated[dict[Name, float], FROZEN] = FrozenDict()
    scale: Literal["log", "linear", "logit"] = "log"
    better: Literal["lower", "higher"] = "lower"
    rope: Annotated[float, Field(gt=0)] = 0.05
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    unit: Label = ""


class LearningCriterion(Spec):
    """The measurement that says that a run learned: one that reaches `limit`.

    `name` and `point` are as of `Measure`; `better` says whether higher or lower values are of runs that learned.
    """

    name: Name
    point: Annotated[dict[Name, float], FROZEN] = FrozenDict()
    limit: float
    better: Literal["lower", "higher"] = "lower"
