"""The maths: attention operators as points of one space, and the host Transformer they run in.

An operator is one choice per stage of the equation in `variants.attend`, each choice with its numbers.
Every module below this package is imported here, so every choice defined in it is known by its `kind`.
"""

from importlib import import_module
from pkgutil import walk_packages

from variants.attend import Attended, Heads, attend
from variants.backbone import Backbone, babyberta, gpt2, llama2, llama3, pythia, qwen2
from variants.backbones import (
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
from variants.extras.key_bias import KeyBias
from variants.extras.key_value_bias import KeyValueBias
from variants.extras.none import NoExtra
from variants.forgetting.forget_gate import ForgetGate
from variants.forgetting.none import NoForgetting
from variants.forgetting.selective import Selective
from variants.gates.none import NoGate
from variants.gates.suppress import Suppress
from variants.head_norms.none import NoHeadNorm
from variants.head_norms.rms import RMS
from variants.margins.log_count import LogCount
from variants.margins.none import NoMargin
from variants.margins.ssmax import SSMax
from variants.merges.difference import Difference
from variants.merges.logits import MeanLogits
from variants.merges.mean import MeanWeights
from variants.normalisers.absolute import Absolute
from variants.normalisers.against_count import AgainstCount
from variants.normalisers.clamped import Clamped
from variants.normalisers.count import Count
from variants.normalisers.entmax15 import Entmax15
from variants.normalisers.ground import Ground
from variants.normalisers.none import NoNormaliser
from variants.normalisers.self_adjusted import SelfAdjusted
from variants.normalisers.sink import Sink
from variants.normalisers.sparsemax import Sparsemax
from variants.normalisers.total import Total
from variants.number import ByDepth, Contrast, KeyVector, Matrix, Number, RunningMean, Vector, granularities
from variants.operator import Operator, causal
from variants.output_gates.none import NoOutputGate
from variants.output_gates.per_channel import PerChannel
from variants.output_gates.per_head import PerHead
from variants.papers.affine_scaled import affine_gated, affine_scaled
from variants.papers.after_softmax import scaled_softmax, value_bias
from variants.papers.baselines import softmax
from variants.papers.beyond import fox, qk_norm, selective, softcap, ssmax
from variants.papers.biases import fixed_value_bias, key_bias, key_value_bias
from variants.papers.differential import differential
from variants.papers.gated import gated_elements, gated_heads
from variants.papers.head_groups import four_scores, soft_avg
from variants.papers.integral import integral, integral_control, integral_weights
from variants.papers.kernels import cosformer, linear_elu, linear_elu_unnormalised, mlp_kernel, mlp_kernel_unnormalised
from variants.papers.named import Limit, catalogue, named
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
from variants.papers.signed import cog
from variants.papers.sinks import learned_sink, off_by_one
from variants.papers.sparse import entmax15, sparsemax
from variants.papers.ssa import ssa
from variants.papers.temperature import temperature
from variants.papers.windows import prefix_lm, sliding_window
from variants.placement import Placement
from variants.positions.alibi import Alibi
from variants.positions.bucket import Bucket
from variants.positions.learned import Learned
from variants.positions.none import NoPositions
from variants.positions.rotary import Rotary
from variants.positions.scheme import Positions
from variants.positions.sinusoidal import Sinusoidal
from variants.positions.t5 import T5
from variants.positions.yarn import Yarn
from variants.preparations.none import NoPreparation
from variants.preparations.rms_norm import RMSNorm
from variants.products.cosformer import CosFormer
from variants.products.dot import Dot
from variants.products.linear_elu import LinearELU
from variants.products.mlp import MLP
from variants.products.relu import ReluFeatures
from variants.readouts.ground_value import GroundValue
from variants.readouts.value_bias import ValueBias
from variants.readouts.values import Values
from variants.rescales.affine import Affine
from variants.rescales.none import NoRescale
from variants.rescales.scale import Scale
from variants.scored import Scores
from variants.scores.elu_plus_one import EluPlusOne
from variants.scores.exponential import Exponential
from variants.scores.head_groups import HeadGroups
from variants.scores.identity import Identity
from variants.scores.relu import Relu
from variants.scores.sigmoid import Sigmoid
from variants.scores.signed_exponential import SignedExponential
from variants.scores.square import Square
from variants.scores.ssa import SSA
from variants.scores.tanh import Tanh
from variants.scores.uniform import Uniform
from variants.signals import Signals
from variants.stage import Stage, Tends
from variants.stages import (
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
    Pair,
    PlainScore,
    Preparation,
    Product,
    Readout,
    Rescale,
    Score,
    Transform,
    Visible,
    Weights,
)
from variants.transformer import Scalars, Tokens, Transformer
from variants.transforms.none import NoTransform
from variants.transforms.softcap import Softcap
from variants.transforms.temperature import Temperature
from variants.visible.everything import Everything
from variants.visible.prefix import Prefix
from variants.visible.window import Window

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
    "Attended",
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
    "Pair",
    "PerChannel",
    "PerHead",
    "Placement",
    "PlainScore",
    "Positions",
    "Prefix",
    "Preparation",
    "Product",
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
    "Weights",
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
    "named",
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
