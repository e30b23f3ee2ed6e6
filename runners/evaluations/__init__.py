"""Evaluations of trained models beside their task: one evaluation per file, named like its `kind`."""

from runners.evaluations.boundary_values import BoundaryValues as BoundaryValues
from runners.evaluations.deviant_inputs import DeviantInputs as DeviantInputs
from runners.evaluations.evaluation import Evaluation as Evaluation, Judge as Judge
from runners.evaluations.large_value import LargeValue as LargeValue
from runners.evaluations.length_extrapolation import (
    LengthExtrapolation as LengthExtrapolation,
    Stretch as Stretch,
)
from runners.evaluations.lm_eval import LmEval as LmEval
from runners.evaluations.minimal_pairs import MinimalPairs as MinimalPairs
