"""Running it: trials, tasks, training, campaigns, machines and the command `ablate`.

What a spec file needs is imported from here; each name is loaded when it is first used, so that the command answers
`--help` without loading torch.
"""

from typing import TYPE_CHECKING

from grid.lazily import lazily

if TYPE_CHECKING:
    from runners.evaluations.boundary_values import BoundaryValues as BoundaryValues
    from runners.evaluations.deviant_inputs import DeviantInputs as DeviantInputs
    from runners.evaluations.deviant_inputs import Prompt as Prompt
    from runners.evaluations.large_value import LargeValue as LargeValue
    from runners.evaluations.length_extrapolation import LengthExtrapolation as LengthExtrapolation
    from runners.evaluations.lm_eval import LmEval as LmEval
    from runners.evaluations.long_context import LongContext as LongContext
    from runners.evaluations.minimal_pairs import MinimalPairs as MinimalPairs
    from runners.evaluations.multiple_choice import MultipleChoice as MultipleChoice
    from runners.evaluations.rope_scaling import Stretch as Stretch
    from runners.execution.run import RunOptions as RunOptions
    from runners.execution.run import RunResult as RunResult
    from runners.execution.run import run_campaign as run_campaign
    from runners.optimisers.adamw import AdamW as AdamW
    from runners.optimisers.muon import Muon as Muon
    from runners.optimisers.optimiser import Optimiser as Optimiser
    from runners.optimisers.schedules import WSD as WSD
    from runners.optimisers.schedules import Constant as Constant
    from runners.optimisers.schedules import Cosine as Cosine
    from runners.optimisers.schedules import Linear as Linear
    from runners.optimisers.schedules import Schedule as Schedule
    from runners.optimisers.training_config import Training as Training
    from runners.optimisers.uncorrected_adamw import UncorrectedAdamW as UncorrectedAdamW
    from runners.probes.attention_entropy import AttentionEntropy as AttentionEntropy
    from runners.probes.attention_maps import AttentionMaps as AttentionMaps
    from runners.probes.effective_rank import EffectiveRank as EffectiveRank
    from runners.probes.first_key import FirstKey as FirstKey
    from runners.probes.first_token import FirstToken as FirstToken
    from runners.probes.gate_sparsity import GateSparsity as GateSparsity
    from runners.probes.gradient_norms import GradientNorms as GradientNorms
    from runners.probes.ground_mass import GroundMass as GroundMass
    from runners.probes.learned_numbers import LearnedNumbers as LearnedNumbers
    from runners.probes.massive_activation import MassiveActivation as MassiveActivation
    from runners.probes.predicted_numbers import PredictedNumbers as PredictedNumbers
    from runners.probes.probe import Probe as Probe
    from runners.probes.probe import Probing as Probing
    from runners.probes.qk_logits import QKLogits as QKLogits
    from runners.probes.sink_share import SinkShare as SinkShare
    from runners.probes.token_classes import TokenClasses as TokenClasses
    from runners.probes.weight_sums import WeightSums as WeightSums
    from runners.slurm.spec import Needs as Needs
    from runners.slurm.spec import Slurm as Slurm
    from runners.tasks.distillation.distillation import Distillation as Distillation
    from runners.tasks.distillation.finished_trial import FinishedTrial as FinishedTrial
    from runners.tasks.distillation.hugging_face_model import HuggingFaceModel as HuggingFaceModel
    from runners.tasks.distillation.teacher import Teacher as Teacher
    from runners.tasks.synthetic.associative_recall import AssociativeRecall as AssociativeRecall
    from runners.tasks.synthetic.grammar import Grammar as Grammar
    from runners.tasks.synthetic.in_context import Curriculum as Curriculum
    from runners.tasks.synthetic.induction import Induction as Induction
    from runners.tasks.synthetic.linear_functions import LinearFunctions as LinearFunctions
    from runners.tasks.synthetic.linear_functions import ShiftGrid as ShiftGrid
    from runners.tasks.synthetic.needle import Needle as Needle
    from runners.tasks.synthetic.quantifiers import LengthGrid as LengthGrid
    from runners.tasks.synthetic.quantifiers import Quantifiers as Quantifiers
    from runners.tasks.synthetic.query_task import AskedLengths as AskedLengths
    from runners.tasks.synthetic.selective_copy import SelectiveCopy as SelectiveCopy
    from runners.tasks.task import Task as Task
    from runners.tasks.text.hub import HubText as HubText
    from runners.tasks.text.interventions.fixed_token import FixedToken as FixedToken
    from runners.tasks.text.interventions.none import NoIntervention as NoIntervention
    from runners.tasks.text.interventions.random_tokens import RandomTokens as RandomTokens
    from runners.tasks.text.masked_text import MaskedText as MaskedText
    from runners.tasks.text.text import Text as Text
    from runners.tasks.text.tokenizers.byte_pairs import BytePairs as BytePairs
    from runners.tasks.text.tokenizers.bytes import Bytes as Bytes
    from runners.tasks.text.tokenizers.tokenizer_file import TokenizerFile as TokenizerFile
    from runners.trial import Execution as Execution
    from runners.trial import Trial as Trial

_HOMES = {
    "AdamW": "runners.optimisers.adamw",
    "AskedLengths": "runners.tasks.synthetic.query_task",
    "AssociativeRecall": "runners.tasks.synthetic.associative_recall",
    "AttentionEntropy": "runners.probes.attention_entropy",
    "AttentionMaps": "runners.probes.attention_maps",
    "BoundaryValues": "runners.evaluations.boundary_values",
    "BytePairs": "runners.tasks.text.tokenizers.byte_pairs",
    "Bytes": "runners.tasks.text.tokenizers.bytes",
    "Constant": "runners.optimisers.schedules",
    "Cosine": "runners.optimisers.schedules",
    "Curriculum": "runners.tasks.synthetic.in_context",
    "DeviantInputs": "runners.evaluations.deviant_inputs",
    "Distillation": "runners.tasks.distillation.distillation",
    "EffectiveRank": "runners.probes.effective_rank",
    "Execution": "runners.trial",
    "FinishedTrial": "runners.tasks.distillation.finished_trial",
    "FirstKey": "runners.probes.first_key",
    "FirstToken": "runners.probes.first_token",
    "FixedToken": "runners.tasks.text.interventions.fixed_token",
    "GateSparsity": "runners.probes.gate_sparsity",
    "GradientNorms": "runners.probes.gradient_norms",
    "Grammar": "runners.tasks.synthetic.grammar",
    "GroundMass": "runners.probes.ground_mass",
    "HubText": "runners.tasks.text.hub",
    "HuggingFaceModel": "runners.tasks.distillation.hugging_face_model",
    "Induction": "runners.tasks.synthetic.induction",
    "LargeValue": "runners.evaluations.large_value",
    "LearnedNumbers": "runners.probes.learned_numbers",
    "LengthExtrapolation": "runners.evaluations.length_extrapolation",
    "LengthGrid": "runners.tasks.synthetic.quantifiers",
    "Linear": "runners.optimisers.schedules",
    "LinearFunctions": "runners.tasks.synthetic.linear_functions",
    "LmEval": "runners.evaluations.lm_eval",
    "LongContext": "runners.evaluations.long_context",
    "MaskedText": "runners.tasks.text.masked_text",
    "MassiveActivation": "runners.probes.massive_activation",
    "MinimalPairs": "runners.evaluations.minimal_pairs",
    "MultipleChoice": "runners.evaluations.multiple_choice",
    "Muon": "runners.optimisers.muon",
    "Needle": "runners.tasks.synthetic.needle",
    "Needs": "runners.slurm.spec",
    "NoIntervention": "runners.tasks.text.interventions.none",
    "Optimiser": "runners.optimisers.optimiser",
    "PredictedNumbers": "runners.probes.predicted_numbers",
    "Probe": "runners.probes.probe",
    "Probing": "runners.probes.probe",
    "Prompt": "runners.evaluations.deviant_inputs",
    "QKLogits": "runners.probes.qk_logits",
    "Quantifiers": "runners.tasks.synthetic.quantifiers",
    "RandomTokens": "runners.tasks.text.interventions.random_tokens",
    "RunOptions": "runners.execution.run",
    "RunResult": "runners.execution.run",
    "Schedule": "runners.optimisers.schedules",
    "SelectiveCopy": "runners.tasks.synthetic.selective_copy",
    "ShiftGrid": "runners.tasks.synthetic.linear_functions",
    "SinkShare": "runners.probes.sink_share",
    "Slurm": "runners.slurm.spec",
    "Stretch": "runners.evaluations.rope_scaling",
    "Task": "runners.tasks.task",
    "Teacher": "runners.tasks.distillation.teacher",
    "Text": "runners.tasks.text.text",
    "TokenClasses": "runners.probes.token_classes",
    "TokenizerFile": "runners.tasks.text.tokenizers.tokenizer_file",
    "Training": "runners.optimisers.training_config",
    "Trial": "runners.trial",
    "UncorrectedAdamW": "runners.optimisers.uncorrected_adamw",
    "WSD": "runners.optimisers.schedules",
    "WeightSums": "runners.probes.weight_sums",
    "run_campaign": "runners.execution.run",
}

__all__ = list(_HOMES)
__getattr__, __dir__ = lazily(__name__, _HOMES)
