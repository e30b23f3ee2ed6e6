"""Tasks: training data, loss and evaluation. Each task is in the file named like its `kind`."""

from ablate.training.tasks.distillation.distillation import Distillation as Distillation
from ablate.training.tasks.distillation.finished_trial import FinishedTrial as FinishedTrial
from ablate.training.tasks.distillation.hugging_face_model import HuggingFaceModel as HuggingFaceModel
from ablate.training.tasks.distillation.teacher import Teacher as Teacher
from ablate.training.tasks.synthetic.associative_recall import AssociativeRecall as AssociativeRecall
from ablate.training.tasks.synthetic.grammar import Grammar as Grammar
from ablate.training.tasks.synthetic.in_context import Curriculum as Curriculum
from ablate.training.tasks.synthetic.induction import Induction as Induction
from ablate.training.tasks.synthetic.linear_functions import LinearFunctions as LinearFunctions, ShiftGrid as ShiftGrid
from ablate.training.tasks.synthetic.multi_query_recall import MultiQueryRecall as MultiQueryRecall
from ablate.training.tasks.synthetic.needle import Needle as Needle
from ablate.training.tasks.synthetic.quantifiers import LengthGrid as LengthGrid, Quantifiers as Quantifiers
from ablate.training.tasks.synthetic.query_task import AskedLengths as AskedLengths, QueryTask as QueryTask
from ablate.training.tasks.synthetic.selective_copy import SelectiveCopy as SelectiveCopy
from ablate.training.tasks.task import (
    Batch as Batch,
    Data as Data,
    Items as Items,
    Measurements as Measurements,
    Predict as Predict,
    Task as Task,
)
from ablate.training.tasks.text.hub import HubText as HubText
from ablate.training.tasks.text.interventions import (
    FixedToken as FixedToken,
    Intervention as Intervention,
    NoIntervention as NoIntervention,
    RandomTokens as RandomTokens,
)
from ablate.training.tasks.text.masked_text import MaskedText as MaskedText
from ablate.training.tasks.text.text import Text as Text
from ablate.training.tasks.text.tokenizers import (
    BytePairs as BytePairs,
    Bytes as Bytes,
    TokenIds as TokenIds,
    Tokenizer as Tokenizer,
    TokenizerFile as TokenizerFile,
)
