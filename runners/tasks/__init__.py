"""Tasks: training data, loss and evaluation. Each task is in the file named like its `kind`."""

from runners.tasks.distillation.distillation import Distillation
from runners.tasks.distillation.finished_trial import FinishedTrial
from runners.tasks.distillation.hugging_face_model import HuggingFaceModel
from runners.tasks.distillation.teacher import Teacher
from runners.tasks.synthetic.associative_recall import AssociativeRecall
from runners.tasks.synthetic.grammar import Grammar
from runners.tasks.synthetic.in_context import Curriculum
from runners.tasks.synthetic.induction import Induction
from runners.tasks.synthetic.linear_functions import LinearFunctions, ShiftGrid
from runners.tasks.synthetic.needle import Needle
from runners.tasks.synthetic.quantifiers import LengthGrid, Quantifiers
from runners.tasks.synthetic.query_task import AskedLengths, QueryTask
from runners.tasks.synthetic.selective_copy import SelectiveCopy
from runners.tasks.task import Batch, Data, Items, Measurements, Predict, Task
from runners.tasks.text.hub import HubText
from runners.tasks.text.interventions import FixedToken, Intervention, NoIntervention, RandomTokens
from runners.tasks.text.masked_text import MaskedText
from runners.tasks.text.text import Text
from runners.tasks.text.tokenizers import BytePairs, Bytes, Tokenizer, TokenizerFile

__all__ = [
    "AskedLengths",
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
    "Measurements",
    "Needle",
    "NoIntervention",
    "Predict",
    "Quantifiers",
    "QueryTask",
    "RandomTokens",
    "SelectiveCopy",
    "ShiftGrid",
    "Task",
    "Teacher",
    "Text",
    "Tokenizer",
    "TokenizerFile",
]
