"""The maths: attention operators as points of one space, and the host Transformer they run in.

An operator is one choice per stage of the equation in `variants.attend`, each choice with its numbers.
Every module below this package is imported here, so every choice defined in it is known by its `kind`.
"""

from importlib import import_module
from pkgutil import walk_packages

from variants.attend import AttentionOutput, Heads, attend
from variants.model.backbone import Backbone, babyberta, gpt2, llama2, llama3, pythia, qwen2
from variants.model.named_backbones import (
    babyberta_8m,
    gpt2_small,
    icl,
    llama2_1b2,
    llama2_125m,
    llama3_1b,
    llama3_3b,
    pythia_125m,
    qwen1_5_0b5,
    qwen2_125m,
    sink_1b,
    sink_60m,
    tiny,
)
from variants.model.placement import Placement
from variants.model.transformer import Scalars, Tokens, Transformer
from variants.number import ByDepth, Contrast, KeyVector, Matrix, Number, RunningMean, Vector, granularities
from variants.operator import Operator, causal
from variants.papers.affine_scaled import affine_gated, affine_scaled
from variants.papers.after_softmax import scaled_softmax, value_bias
from variants.papers.baselines import softmax
from variants.papers.beyond import fox, qk_norm, selective, softcap, ssmax
from variants.papers.biases import fixed_value_bias, key_bias, key_value_bias
from variants.papers.catalogue import Limit, catalogue, named_operator
from variants.papers.cog import cog
from variants.papers.differential import differential
from variants.papers.gated_attention import gated_elements, gated_heads
from variants.papers.head_groups import four_scores, soft_avg
from variants.papers.integral import integral, integral_control, integral_weights
from variants.papers.kernels import (
    cosformer,
    linear_elu,
    linear_elu_unnormalised,
    mlp_kernel,
    mlp_kernel_unnormalised,
)
from variants.papers.principled import principled, principled_gate, principled_ground, principled_margin
from variants.papers.scores_of_logits import (
    elu_plus_one,
    elu_plus_one_normalised,
    identity,
    identity_clamped,
    sigmoid,
    sigmoid_log_count,
    sigmoid_normalised,
)
from variants.papers.self_adjusting import sa_softmax
from variants.papers.sinks import learned_sink, off_by_one
from variants.papers.sparse import entmax15, sparsemax
from variants.papers.ssa import ssa
from variants.papers.temperature import temperature
from variants.papers.windows import prefix_lm, sliding_window
from variants.score_map import Scores
from variants.stages.extras.key_bias import KeyBias
from variants.stages.extras.key_value_bias import KeyValueBias
from variants.stages.extras.none import NoExtra
from variants.stages.families import (
    AttentionWeights,
    Extra,
    FeatureProduct,
    Forgetting,
    Gate,
    HeadNorm,
    LogScore,
    Margin,
    Merge,
    Normaliser,
    OutputGate,
    PlainScore,
    Preparation,
    Product,
    QueryKey,
    Readout,
    Rescale,
    Score,
    Transform,
    Visible,
)
from variants.stages.forgetting.forget_gate import ForgetGate
from variants.stages.forgetting.none import NoForgetting
from variants.stages.forgetting.selective import Selective
from variants.stages.gates.none import NoGate
from variants.stages.gates.suppress import Suppress
from variants.stages.head_norms.none import NoHeadNorm
from variants.stages.head_norms.rms import RMS
from variants.stages.margins.log_count import LogCount
from variants.stages.margins.none import NoMargin
from variants.stages.margins.ssmax import SSMax
from variants.stages.merges.difference import Difference
from variants.stages.merges.logits import MeanLogits
from variants.stages.merges.mean import MeanWeights
from variants.stages.normalisers.absolute import Absolute
from variants.stages.normalisers.against_count import AgainstCount
from variants.stages.normalisers.clamped import Clamped
from variants.stages.normalisers.count import Count
from variants.stages.normalisers.entmax15 import Entmax15
from variants.stages.normalisers.ground import Ground
from variants.stages.normalisers.none import NoNormaliser
from variants.stages.normalisers.self_adjusted import SelfAdjusted
from variants.stages.normalisers.sink import Sink
from variants.stages.normalisers.sparsemax import Sparsemax
from variants.stages.normalisers.total import Total
from variants.stages.output_gates.none import NoOutputGate
from variants.stages.output_gates.per_channel import PerChannel
from variants.stages.output_gates.per_head import PerHead
from variants.stages.positions.alibi import Alibi
from variants.stages.positions.bucket import Bucket
from variants.stages.positions.learned import Learned
from variants.stages.positions.none import NoPositions
from variants.stages.positions.rotary import Rotary
from variants.stages.positions.scheme import Positions
from variants.stages.positions.sinusoidal import Sinusoidal
from variants.stages.positions.t5 import T5
from variants.stages.positions.yarn import Yarn
from variants.stages.preparations.none import NoPreparation
from variants.stages.preparations.rms_norm import RMSNorm
from variants.stages.products.cosformer import CosFormer
from variants.stages.products.dot import Dot
from variants.stages.products.linear_elu import LinearELU
from variants.stages.products.mlp import MLP
from variants.stages.products.relu import ReluFeatures
from variants.stages.readouts.ground_value import GroundValue
from variants.stages.readouts.value_bias import ValueBias
from variants.stages.readouts.values import Values
from variants.stages.rescales.affine import Affine
from variants.stages.rescales.none import NoRescale
from variants.stages.rescales.scale import Scale
from variants.stages.scores.elu_plus_one import EluPlusOne
from variants.stages.scores.exponential import Exponential
from variants.stages.scores.head_groups import HeadGroups
from variants.stages.scores.identity import Identity
from variants.stages.scores.relu import Relu
from variants.stages.scores.sigmoid import Sigmoid
from variants.stages.scores.signed_exponential import SignedExponential
from variants.stages.scores.square import Square
from variants.stages.scores.ssa import SSA
from variants.stages.scores.tanh import Tanh
from variants.stages.scores.uniform import Uniform
from variants.stages.signals import Signals
from variants.stages.stage import Stage, Tends
from variants.stages.transforms.none import NoTransform
from variants.stages.transforms.softcap import Softcap
from variants.stages.transforms.temperature import Temperature
from variants.stages.visible.everything import Everything
from variants.stages.visible.prefix import Prefix
from variants.stages.visible.window import Window

for _module in walk_packages(__path__, f"{__name__}."):
    if not _module.name.startswith(f"{__name__}.proof"):  # laws are asked for by name
        import_module(_module.name)

__all__ = [
    "MLP",
    "RMS",
    "SSA",
    "T5",
    "Absolute",
    "Affine",
    "AgainstCount",
    "Alibi",
    "AttentionOutput",
    "AttentionWeights",
    "Backbone",
    "Bucket",
    "ByDepth",
    "Clamped",
    "Contrast",
    "CosFormer",
    "Count",
    "Difference",
    "Dot",
    "EluPlusOne",
    "Entmax15",
    "Everything",
    "Exponential",
    "Extra",
    "FeatureProduct",
    "ForgetGate",
    "Forgetting",
    "Gate",
    "Ground",
    "GroundValue",
    "HeadGroups",
    "HeadNorm",
    "Heads",
    "Identity",
    "KeyBias",
    "KeyValueBias",
    "KeyVector",
    "Learned",
    "Limit",
    "LinearELU",
    "LogCount",
    "LogScore",
    "Margin",
    "Matrix",
    "MeanLogits",
    "MeanWeights",
    "Merge",
    "NoExtra",
    "NoForgetting",
    "NoGate",
    "NoHeadNorm",
    "NoMargin",
    "NoNormaliser",
    "NoOutputGate",
    "NoPositions",
    "NoPreparation",
    "NoRescale",
    "NoTransform",
    "Normaliser",
    "Number",
    "Operator",
    "OutputGate",
    "PerChannel",
    "PerHead",
    "Placement",
    "PlainScore",
    "Positions",
    "Prefix",
    "Preparation",
    "Product",
    "QueryKey",
    "RMSNorm",
    "Readout",
    "Relu",
    "ReluFeatures",
    "Rescale",
    "Rotary",
    "RunningMean",
    "SSMax",
    "Scalars",
    "Scale",
    "Score",
    "Scores",
    "Selective",
    "SelfAdjusted",
    "Sigmoid",
    "Signals",
    "SignedExponential",
    "Sink",
    "Sinusoidal",
    "Softcap",
    "Sparsemax",
    "Square",
    "Stage",
    "Suppress",
    "Tanh",
    "Temperature",
    "Tends",
    "Tokens",
    "Total",
    "Transform",
    "Transformer",
    "Uniform",
    "ValueBias",
    "Values",
    "Vector",
    "Visible",
    "Window",
    "Yarn",
    "affine_gated",
    "affine_scaled",
    "attend",
    "babyberta",
    "babyberta_8m",
    "catalogue",
    "causal",
    "cog",
    "cosformer",
    "differential",
    "elu_plus_one",
    "elu_plus_one_normalised",
    "entmax15",
    "fixed_value_bias",
    "four_scores",
    "fox",
    "gated_elements",
    "gated_heads",
    "gpt2",
    "gpt2_small",
    "granularities",
    "icl",
    "identity",
    "identity_clamped",
    "integral",
    "integral_control",
    "integral_weights",
    "key_bias",
    "key_value_bias",
    "learned_sink",
    "linear_elu",
    "linear_elu_unnormalised",
    "llama2",
    "llama2_1b2",
    "llama2_125m",
    "llama3",
    "llama3_1b",
    "llama3_3b",
    "mlp_kernel",
    "mlp_kernel_unnormalised",
    "named_operator",
    "off_by_one",
    "prefix_lm",
    "principled",
    "principled_gate",
    "principled_ground",
    "principled_margin",
    "pythia",
    "pythia_125m",
    "qk_norm",
    "qwen1_5_0b5",
    "qwen2",
    "qwen2_125m",
    "sa_softmax",
    "scaled_softmax",
    "selective",
    "sigmoid",
    "sigmoid_log_count",
    "sigmoid_normalised",
    "sink_1b",
    "sink_60m",
    "sliding_window",
    "soft_avg",
    "softcap",
    "softmax",
    "sparsemax",
    "ssa",
    "ssmax",
    "temperature",
    "tiny",
    "value_bias",
]
