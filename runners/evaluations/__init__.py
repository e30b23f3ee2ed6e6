"""What a trained model is judged by beside its own task: one evaluation, one file, named like its `kind`."""

from runners.evaluations.evaluation import Evaluation, Judge

__all__ = ["Evaluation", "Judge"]
