"""What to run: specs, keys, axes and grids. Pure data; needs pydantic only.

    Grid(name="scores", base=Trial(...), axes=[over("operator.score", [Exponential(), SSA()])], seeds=range(5))

A `Spec` is a frozen value with a content key, a `Choice` a family of specs told apart by `kind`. A `Grid` changes a
base trial along axes; `grid.trials()` yields its trials in execution order. What is wrong is a `SpecError`.
"""

from grid.axis import Axis, Bundle, Dimension, one_at_a_time, over, zipped
from grid.diff import Difference, diff
from grid.errors import AblateError, EnvironmentProblem, NotFoundError, SpecError, StoreError
from grid.frozen import FROZEN, FrozenDict
from grid.grid import Grid, Planned
from grid.key import SPEC_SCHEMA, canonical_json, content_key
from grid.measure import Measure
from grid.path import has, value_at
from grid.rule import Rule, forbid
from grid.spec import Choice, Label, OutsideKey, Spec, cell_key
from grid.validation import spec_error

__all__ = [
    "FROZEN",
    "SPEC_SCHEMA",
    "AblateError",
    "Axis",
    "Bundle",
    "Choice",
    "Difference",
    "Dimension",
    "EnvironmentProblem",
    "FrozenDict",
    "Grid",
    "Label",
    "Measure",
    "NotFoundError",
    "OutsideKey",
    "Planned",
    "Rule",
    "Spec",
    "SpecError",
    "StoreError",
    "canonical_json",
    "cell_key",
    "content_key",
    "diff",
    "forbid",
    "has",
    "one_at_a_time",
    "over",
    "spec_error",
    "value_at",
    "zipped",
]
