"""Probes of the inside of a model: one probe per file, named like its `kind`."""

from runners.probes.attention_entropy import AttentionEntropy
from runners.probes.attention_maps import AttentionMaps
from runners.probes.effective_rank import EffectiveRank
from runners.probes.first_key import FirstKey
from runners.probes.first_token import FirstToken
from runners.probes.gate_sparsity import GateSparsity
from runners.probes.gradient_norms import GradientNorms
from runners.probes.ground_mass import GroundMass
from runners.probes.learned_numbers import LearnedNumbers
from runners.probes.massive_activation import MassiveActivation
from runners.probes.predicted_numbers import PredictedNumbers
from runners.probes.probe import Found, Probe, ProbeArray, Probed, ProbeInput, Probing, RowInfo
from runners.probes.qk_logits import QKLogits
from runners.probes.sink_share import SinkShare
from runners.probes.token_classes import Classified, TokenClasses
from runners.probes.weight_sums import WeightSums

__all__ = [
    "AttentionEntropy",
    "AttentionMaps",
    "Classified",
    "EffectiveRank",
    "FirstKey",
    "FirstToken",
    "Found",
    "GateSparsity",
    "GradientNorms",
    "GroundMass",
    "LearnedNumbers",
    "MassiveActivation",
    "PredictedNumbers",
    "Probe",
    "ProbeArray",
    "ProbeInput",
    "Probed",
    "Probing",
    "QKLogits",
    "RowInfo",
    "SinkShare",
    "TokenClasses",
    "WeightSums",
]
