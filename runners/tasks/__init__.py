"""Tasks: training data, loss and evaluation. Each task is in the file named like its `kind`."""

from runners.tasks.distillation.distillation import Distillation as Distillation
from runners.tasks.distillation.finished_trial import FinishedTrial as FinishedTrial
from runners.tasks.distillation.hugging_face_model import HuggingFaceModel as HuggingFaceModel
from runners.tasks.distillation.teacher import Teacher as Teacher
from runners.tasks.synthetic.associative_recall import AssociativeRecall as AssociativeRecall
from runners.tasks.synthetic.grammar import Grammar as Grammar
from runners.tasks.synthetic.in_context import Curriculum as Curriculum
from runners.tasks.synthetic.induction import Induction as Induction
from runners.tasks.synthetic.linear_functions import LinearFunctions as LinearFunctions, ShiftGrid as ShiftGrid
from runners.tasks.synthetic.needle import Needle as Needle
from runners.tasks.synthetic.quantifiers import LengthGrid as LengthGrid, Quantifiers as Quantifiers
from runners.tasks.synthetic.query_task import AskedLengths as AskedLengths, QueryTask as QueryTask
from runners.tasks.synthetic.selective_copy import SelectiveCopy as SelectiveCopy
from runners.tasks.task import (
    Batch as Batch,
    Data as Data,
    Items as Items,
    Measurements as Measurements,
    Predict as Predict,
    Task as Task,
)
from runners.tasks.text.hub import HubText as HubText
from runners.tasks.text.interventions import (
    FixedToken as FixedToken,
    Intervention as Intervention,
    NoIntervention as NoIntervention,
    RandomTokens as RandomTokens,
)
from runners.tasks.text.masked_text import MaskedText as MaskedText
from runners.tasks.text.text import Text as Text
from runners.tasks.text.tokenizers import (
    BytePairs as BytePairs,
    Bytes as Bytes,
    Tokenizer as Tokenizer,
    TokenizerFile as TokenizerFile,
)
