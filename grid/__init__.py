"""What to run: specs, keys, axes and grids. Pure data; needs pydantic only.

    Grid(name="scores", base=Trial(...), axes=[over("operator.score", [Exponential(), SSA()])], seeds=range(5))

A `Spec` is a frozen value with a content key, a `Choice` a family of specs told apart by `kind`. A `Grid` changes a
base trial along axes; `grid.trials()` yields its trials in execution order. What is wrong is a `SpecError`.

Names are imported when they are first used, so that what needs `grid.errors` alone does not load pydantic.
"""

from typing import TYPE_CHECKING

from grid.lazily import lazily

if TYPE_CHECKING:
    from grid.axis import Axis as Axis
    from grid.axis import Bundle as Bundle
    from grid.axis import Dimension as Dimension
    from grid.axis import one_at_a_time as one_at_a_time
    from grid.axis import over as over
    from grid.axis import zipped as zipped
    from grid.differences import SpecDifference as SpecDifference
    from grid.differences import diff as diff
    from grid.errors import AblateError as AblateError
    from grid.errors import EnvironmentProblem as EnvironmentProblem
    from grid.errors import NotFoundError as NotFoundError
    from grid.errors import SpecError as SpecError
    from grid.errors import StoreError as StoreError
    from grid.frozen import FROZEN as FROZEN
    from grid.frozen import FrozenDict as FrozenDict
    from grid.grid import Grid as Grid
    from grid.grid import Planned as Planned
    from grid.key import SPEC_SCHEMA as SPEC_SCHEMA
    from grid.key import canonical_json as canonical_json
    from grid.key import content_key as content_key
    from grid.measure import Measure as Measure
    from grid.path import has as has
    from grid.path import value_at as value_at
    from grid.rule import Rule as Rule
    from grid.rule import forbid as forbid
    from grid.spec import Choice as Choice
    from grid.spec import Label as Label
    from grid.spec import OutsideKey as OutsideKey
    from grid.spec import Spec as Spec
    from grid.spec import cell_key as cell_key
    from grid.validation import spec_error as spec_error

_HOMES = {
    "FROZEN": "grid.frozen",
    "SPEC_SCHEMA": "grid.key",
    "AblateError": "grid.errors",
    "Axis": "grid.axis",
    "Bundle": "grid.axis",
    "Choice": "grid.spec",
    "SpecDifference": "grid.differences",
    "Dimension": "grid.axis",
    "EnvironmentProblem": "grid.errors",
    "FrozenDict": "grid.frozen",
    "Grid": "grid.grid",
    "Label": "grid.spec",
    "Measure": "grid.measure",
    "NotFoundError": "grid.errors",
    "OutsideKey": "grid.spec",
    "Planned": "grid.grid",
    "Rule": "grid.rule",
    "Spec": "grid.spec",
    "SpecError": "grid.errors",
    "StoreError": "grid.errors",
    "canonical_json": "grid.key",
    "cell_key": "grid.spec",
    "content_key": "grid.key",
    "diff": "grid.differences",
    "forbid": "grid.rule",
    "has": "grid.path",
    "one_at_a_time": "grid.axis",
    "over": "grid.axis",
    "spec_error": "grid.validation",
    "value_at": "grid.path",
    "zipped": "grid.axis",
}

__all__ = list(_HOMES)
__getattr__, __dir__ = lazily(__name__, _HOMES)
