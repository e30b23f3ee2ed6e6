from .axis import (
    Axis as Axis,
    Bundle as Bundle,
    Dimension as Dimension,
    one_at_a_time as one_at_a_time,
    over as over,
    zipped as zipped,
)
from .control import ControlChange as ControlChange
from .errors import (
    AblateError as AblateError,
    EnvironmentProblem as EnvironmentProblem,
    NotFoundError as NotFoundError,
    SpecError as SpecError,
    StoreError as StoreError,
)
from .experiment import Experiment as Experiment, ExperimentExecution as ExperimentExecution
from .frozen import FROZEN as FROZEN, FrozenDict as FrozenDict
from .grid import Grid as Grid, Planned as Planned
from .key import SPEC_SCHEMA as SPEC_SCHEMA, canonical_json as canonical_json, content_key as content_key
from .measure import LearningCriterion as LearningCriterion, Measure as Measure
from .paper import PaperGrids as PaperGrids, PaperItem as PaperItem, PaperScale as PaperScale
from .path import has as has, value_at as value_at
from .row_info import RowInfo as RowInfo
from .rule import CellRule as CellRule, forbid as forbid
from .run import Run as Run, RunRecorder as RunRecorder
from .spec import Choice as Choice, Label as Label, OutsideKey as OutsideKey, Spec as Spec, cell_key as cell_key
from .validation import spec_error as spec_error
