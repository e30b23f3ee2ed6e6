from .evaluations.boundary_values import BoundaryValues as BoundaryValues
from .evaluations.deviant_inputs import DeviantInputs as DeviantInputs, Prompt as Prompt
from .evaluations.evaluation import Evaluation as Evaluation, Evaluator as Evaluator
from .evaluations.large_value import LargeValue as LargeValue
from .evaluations.length_extrapolation import LengthExtrapolation as LengthExtrapolation, Stretch as Stretch
from .evaluations.lm_eval import LmEval as LmEval
from .evaluations.minimal_pairs import MinimalPairs as MinimalPairs
from .optimisers.adamw import AdamW as AdamW, UncorrectedAdamW as UncorrectedAdamW
from .optimisers.muon import Muon as Muon
from .optimisers.optimiser import Optimiser as Optimiser
from .optimisers.schedules import (
    WSD as WSD,
    Constant as Constant,
    Cosine as Cosine,
    Linear as Linear,
    Schedule as Schedule,
)
from .optimisers.training_config import Training as Training
from .posthoc.checkpoint_probes import probe_checkpoint as probe_checkpoint
from .probes.attention_entropy import AttentionEntropy as AttentionEntropy
from .probes.attention_maps import AttentionMaps as AttentionMaps
from .probes.effective_rank import EffectiveRank as EffectiveRank
from .probes.first_key import FirstKey as FirstKey
from .probes.first_token import FirstToken as FirstToken
from .probes.gate_sparsity import GateSparsity as GateSparsity
from .probes.gradient_norms import GradientNorms as GradientNorms
from .probes.ground_mass import GroundMass as GroundMass
from .probes.learned_numbers import LearnedNumbers as LearnedNumbers
from .probes.massive_activation import MassiveActivation as MassiveActivation
from .probes.predicted_numbers import PredictedNumbers as PredictedNumbers
from .probes.probe import Probe as Probe, Probed as Probed, ProbeInput as ProbeInput, Probing as Probing
from .probes.qk_logits import QKLogits as QKLogits
from .probes.sink_share import SinkShare as SinkShare
from .probes.token_classes import TokenClasses as TokenClasses
from .probes.weight_sums import WeightSums as WeightSums
from .tasks.counter_rng import CPU as CPU, Draws as Draws
from .tasks.distillation.distillation import Distillation as Distillation
from .tasks.distillation.finished_trial import FinishedTrial as FinishedTrial
from .tasks.distillation.hugging_face_model import HuggingFaceModel as HuggingFaceModel
from .tasks.distillation.teacher import Teacher as Teacher
from .tasks.synthetic.associative_recall import AssociativeRecall as AssociativeRecall
from .tasks.synthetic.grammar import Grammar as Grammar
from .tasks.synthetic.in_context import Curriculum as Curriculum
from .tasks.synthetic.induction import Induction as Induction
from .tasks.synthetic.linear_functions import LinearFunctions as LinearFunctions, ShiftGrid as ShiftGrid
from .tasks.synthetic.multi_query_recall import MultiQueryRecall as MultiQueryRecall
from .tasks.synthetic.needle import Needle as Needle
from .tasks.synthetic.quantifiers import LengthGrid as LengthGrid, Quantifiers as Quantifiers
from .tasks.synthetic.query_task import AskedLengths as AskedLengths
from .tasks.synthetic.selective_copy import SelectiveCopy as SelectiveCopy
from .tasks.task import (
    UNSCORED as UNSCORED,
    Batch as Batch,
    Data as Data,
    Items as Items,
    Measurements as Measurements,
    Predict as Predict,
    Task as Task,
    TokenData as TokenData,
    in_chunks as in_chunks,
    over_items as over_items,
    over_ratio as over_ratio,
    token_losses as token_losses,
)
from .tasks.text.hub import HubText as HubText
from .tasks.text.interventions import (
    FixedToken as FixedToken,
    NoIntervention as NoIntervention,
    RandomTokens as RandomTokens,
)
from .tasks.text.masked_text import MaskedText as MaskedText
from .tasks.text.text import Text as Text
from .tasks.text.tokenizers import (
    BytePairs as BytePairs,
    Bytes as Bytes,
    TokenIds as TokenIds,
    TokenizerFile as TokenizerFile,
)
from .trial import Execution as Execution, Trial as Trial
