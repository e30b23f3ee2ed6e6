"""What a model learns, and what it is judged by: one task, one file, named like its `kind`."""

from runners.tasks.asked import AskedLengths, Asking
from runners.tasks.associative_recall import AssociativeRecall
from runners.tasks.grammar import Grammar
from runners.tasks.in_context import Curriculum
from runners.tasks.induction import Induction
from runners.tasks.linear_functions import LinearFunctions, ShiftGrid
from runners.tasks.needle import Needle
from runners.tasks.quantifiers import LengthGrid, Quantifiers
from runners.tasks.selective_copy import SelectiveCopy
from runners.tasks.task import Batch, Data, Items, Measured, Predict, Task
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
    "Grammar",
    "Induction",
    "Items",
    "LengthGrid",
    "LinearFunctions",
    "Measured",
    "Needle",
    "Predict",
    "Quantifiers",
    "SelectiveCopy",
    "ShiftGrid",
    "Task",
    "Text",
    "Tokenizer",
    "TokenizerFile",
]
