"""Probes of the inside of a model: one probe per file, named like its `kind`."""

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
from runners.probes.probe import (
    Found as Found,
    Probe as Probe,
    ProbeArray as ProbeArray,
    Probed as Probed,
    ProbeInput as ProbeInput,
    Probing as Probing,
    RowInfo as RowInfo,
)
from runners.probes.qk_logits import QKLogits as QKLogits
from runners.probes.sink_share import SinkShare as SinkShare
from runners.probes.token_classes import Classified as Classified, TokenClasses as TokenClasses
from runners.probes.weight_sums import WeightSums as WeightSums
