"""Evaluations of trained models beside their task: one evaluation per file, named like its `kind`."""

from runners.evaluations.boundary_values import BoundaryValues
from runners.evaluations.deviant_inputs import DeviantInputs
from runners.evaluations.evaluation import Evaluation, Judge
from runners.evaluations.large_value import LargeValue
from runners.evaluations.length_extrapolation import LengthExtrapolation
from runners.evaluations.lm_eval import LmEval
from runners.evaluations.long_context import LongContext
from runners.evaluations.minimal_pairs import MinimalPairs
from runners.evaluations.multiple_choice import MultipleChoice
from runners.evaluations.rope_scaling import Stretch

__all__ = [
    "BoundaryValues",
    "DeviantInputs",
    "Evaluation",
    "Judge",
    "LargeValue",
    "LengthExtrapolation",
    "LmEval",
    "LongContext",
    "MinimalPairs",
    "MultipleChoice",
    "Stretch",
]
