"""Axes on the stand-in trial, and a grid of those that a test asks for."""

from standin import PRINCIPLED, SOFTMAX, SSA_OPERATOR, Trial

from ablate.grid import Dimension, Grid, over

BASE = Trial(operator=PRINCIPLED)
LAYERS = over("model.layers", [1, 2, 3])
HEADS = over("model.heads", [2, 4])
OPERATORS = over("operator", [SOFTMAX, SSA_OPERATOR, PRINCIPLED])


def grid(*axes: Dimension, **rest: object) -> Grid:
    """Principled attention along `axes`, with two seeds."""
    return Grid("g", BASE, axes, **{"seeds": range(2)} | rest)  # type: ignore[arg-type]


def labels(made: Grid) -> list[str]:
    """Labels of the cells, in the order of declaration."""
    return [planned.label for planned in made.cells()]
