"""Evaluations of trained models beside their task: one evaluation per file, named like its `kind`."""

from ablate.runners.evaluations.boundary_values import BoundaryValues as BoundaryValues
from ablate.runners.evaluations.deviant_inputs import DeviantInputs as DeviantInputs
from ablate.runners.evaluations.evaluation import Evaluation as Evaluation, Judge as Judge
from ablate.runners.evaluations.large_value import LargeValue as LargeValue
from ablate.runners.evaluations.length_extrapolation import (
    LengthExtrapolation as LengthExtrapolation,
    Stretch as Stretch,
)
from ablate.runners.evaluations.lm_eval import LmEval as LmEval
from ablate.runners.evaluations.minimal_pairs import MinimalPairs as MinimalPairs
