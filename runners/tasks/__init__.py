"""Tasks: training data, loss and evaluation. Each task is in the file named like its `kind`."""

from ablate.runners.tasks.distillation.distillation import Distillation as Distillation
from ablate.runners.tasks.distillation.finished_trial import FinishedTrial as FinishedTrial
from ablate.runners.tasks.distillation.hugging_face_model import HuggingFaceModel as HuggingFaceModel
from ablate.runners.tasks.distillation.teacher import Teacher as Teacher
from ablate.runners.tasks.synthetic.associative_recall import AssociativeRecall as AssociativeRecall
from ablate.runners.tasks.synthetic.grammar import Grammar as Grammar
from ablate.runners.tasks.synthetic.in_context import Curriculum as Curriculum
from ablate.runners.tasks.synthetic.induction import Induction as Induction
from ablate.runners.tasks.synthetic.linear_functions import LinearFunctions as LinearFunctions, ShiftGrid as ShiftGrid
from ablate.runners.tasks.synthetic.multi_query_recall import MultiQueryRecall as MultiQueryRecall
from ablate.runners.tasks.synthetic.needle import Needle as Needle
from ablate.runners.tasks.synthetic.quantifiers import LengthGrid as LengthGrid, Quantifiers as Quantifiers
from ablate.runners.tasks.synthetic.query_task import AskedLengths as AskedLengths, QueryTask as QueryTask
from ablate.runners.tasks.synthetic.selective_copy import SelectiveCopy as SelectiveCopy
from ablate.runners.tasks.task import (
    Batch as Batch,
    Data as Data,
    Items as Items,
    Measurements as Measurements,
    Predict as Predict,
    Task as Task,
)
from ablate.runners.tasks.text.hub import HubText as HubText
from ablate.runners.tasks.text.interventions import (
    FixedToken as FixedToken,
    Intervention as Intervention,
    NoIntervention as NoIntervention,
    RandomTokens as RandomTokens,
)
from ablate.runners.tasks.text.masked_text import MaskedText as MaskedText
from ablate.runners.tasks.text.text import Text as Text
from ablate.runners.tasks.text.tokenizers import (
    BytePairs as BytePairs,
    Bytes as Bytes,
    Tokenizer as Tokenizer,
    TokenizerFile as TokenizerFile,
)
