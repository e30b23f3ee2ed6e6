"""Evaluations of trained models beside their task: one evaluation per file, named like its `kind`."""

from ablate.training.evaluations.boundary_values import BoundaryValues as BoundaryValues
from ablate.training.evaluations.deviant_inputs import DeviantInputs as DeviantInputs
from ablate.training.evaluations.evaluation import Evaluation as Evaluation, Evaluator as Evaluator
from ablate.training.evaluations.large_value import LargeValue as LargeValue
from ablate.training.evaluations.length_extrapolation import (
    LengthExtrapolation as LengthExtrapolation,
    Stretch as Stretch,
)
from ablate.training.evaluations.lm_eval import LmEval as LmEval
from ablate.training.evaluations.minimal_pairs import MinimalPairs as MinimalPairs
