"""What a grid is judged by: one evaluation, at one point, on one scale."""

from typing import Annotated, Literal

from pydantic import Field

from grid.frozen import FROZEN, FrozenDict
from grid.spec import Label, Spec


class Measure(Spec):
    """The number that decides, and what counts as a difference.

    `name` is an evaluation's name and `point` the place on its evaluation grid (`{"sigma_x": 1, "sigma_f": 5}`). On
    the log scale variants are compared by ratios, so values must be positive; on the logit scale by ratios of odds,
    for rates between 0 and 1 such as an accuracy; on the linear scale by differences. `rope` is the region of
    practical equivalence: a ratio on the log scale (0.05 = within 5 %), a ratio of odds on the logit scale (0.05 is
    1.2 points at 50 % and 0.44 at 90 %), a difference in the measure's own unit on the linear scale. `alpha` is the
    family-wise error rate of the verdicts.
    """

    name: Annotated[str, Field(min_length=1)]
    point: Annotated[dict[str, float], FROZEN] = FrozenDict()
    scale: Literal["log", "linear", "logit"] = "log"
    better: Literal["lower", "higher"] = "lower"
    rope: Annotated[float, Field(gt=0)] = 0.05
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    unit: Label = ""
