"""Probes of the inside of a model: one probe per file, named like its `kind`."""

from ablate.runners.probes.attention_entropy import AttentionEntropy as AttentionEntropy
from ablate.runners.probes.attention_maps import AttentionMaps as AttentionMaps
from ablate.runners.probes.effective_rank import EffectiveRank as EffectiveRank
from ablate.runners.probes.first_key import FirstKey as FirstKey
from ablate.runners.probes.first_token import FirstToken as FirstToken
from ablate.runners.probes.gate_sparsity import GateSparsity as GateSparsity
from ablate.runners.probes.gradient_norms import GradientNorms as GradientNorms
from ablate.runners.probes.ground_mass import GroundMass as GroundMass
from ablate.runners.probes.learned_numbers import LearnedNumbers as LearnedNumbers
from ablate.runners.probes.massive_activation import MassiveActivation as MassiveActivation
from ablate.runners.probes.predicted_numbers import PredictedNumbers as PredictedNumbers
from ablate.runners.probes.probe import (
    Found as Found,
    Probe as Probe,
    ProbeArray as ProbeArray,
    Probed as Probed,
    ProbeInput as ProbeInput,
    Probing as Probing,
    RowInfo as RowInfo,
)
from ablate.runners.probes.qk_logits import QKLogits as QKLogits
from ablate.runners.probes.sink_share import SinkShare as SinkShare
from ablate.runners.probes.token_classes import Classified as Classified, TokenClasses as TokenClasses
from ablate.runners.probes.weight_sums import WeightSums as WeightSums
