"""What a model learns, and what it is judged by: one task, one file, named like its `kind`."""

from runners.tasks.asked import AskedLengths, Asking
from runners.tasks.associative_recall import AssociativeRecall
from runners.tasks.distillation import Distillation
from runners.tasks.finished_trial import FinishedTrial
from runners.tasks.grammar import Grammar
from runners.tasks.hub import HubText
from runners.tasks.hugging_face_model import HuggingFaceModel
from runners.tasks.in_context import Curriculum
from runners.tasks.induction import Induction
from runners.tasks.interventions import FixedToken, Intervention, NoIntervention, RandomTokens
from runners.tasks.linear_functions import LinearFunctions, ShiftGrid
from runners.tasks.masked_text import MaskedText
from runners.tasks.needle import Needle
from runners.tasks.quantifiers import LengthGrid, Quantifiers
from runners.tasks.selective_copy import SelectiveCopy
from runners.tasks.task import Batch, Data, Items, Measured, Predict, Task
from runners.tasks.teacher import Teacher
from runners.tasks.text import Text
from runners.tasks.tokenizers import BytePairs, Bytes, Tokenizer, TokenizerFile

__all__ = [
    "AskedLengths",
    "Asking",
    "AssociativeRecall",
    "Batch",
    "BytePairs",
    "Bytes",
    "Curriculum",
    "Data",
    "Distillation",
    "FinishedTrial",
    "FixedToken",
    "Grammar",
    "HubText",
    "HuggingFaceModel",
    "Induction",
    "Intervention",
    "Items",
    "LengthGrid",
    "LinearFunctions",
    "MaskedText",
    "Measured",
    "Needle",
    "NoIntervention",
    "Predict",
    "Quantifiers",
    "RandomTokens",
    "SelectiveCopy",
    "ShiftGrid",
    "Task",
    "Teacher",
    "Text",
    "Tokenizer",
    "TokenizerFile",
]
