"""Probes of the inside of a model: one probe per file, named like its `kind`."""

from ablate.training.probes.attention_entropy import AttentionEntropy as AttentionEntropy
from ablate.training.probes.attention_maps import AttentionMaps as AttentionMaps
from ablate.training.probes.effective_rank import EffectiveRank as EffectiveRank
from ablate.training.probes.first_key import FirstKey as FirstKey
from ablate.training.probes.first_token import FirstToken as FirstToken
from ablate.training.probes.gate_sparsity import GateSparsity as GateSparsity
from ablate.training.probes.gradient_norms import GradientNorms as GradientNorms
from ablate.training.probes.ground_mass import GroundMass as GroundMass
from ablate.training.probes.learned_numbers import LearnedNumbers as LearnedNumbers
from ablate.training.probes.massive_activation import MassiveActivation as MassiveActivation
from ablate.training.probes.predicted_numbers import PredictedNumbers as PredictedNumbers
from ablate.training.probes.probe import (
    Found as Found,
    Probe as Probe,
    ProbeArray as ProbeArray,
    Probed as Probed,
    ProbeInput as ProbeInput,
    Probing as Probing,
    RowInfo as RowInfo,
)
from ablate.training.probes.qk_logits import QKLogits as QKLogits
from ablate.training.probes.sink_share import SinkShare as SinkShare
from ablate.training.probes.token_classes import Classified as Classified, TokenClasses as TokenClasses
from ablate.training.probes.weight_sums import WeightSums as WeightSums
