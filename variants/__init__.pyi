from .attend import AttentionOutput as AttentionOutput, Heads as Heads, attend as attend
from .granularity import granularities as granularities
from .model.attention import Attention as Attention, AttentionOp as AttentionOp
from .model.backbone import (
    Backbone as Backbone,
    babyberta as babyberta,
    gpt2 as gpt2,
    llama2 as llama2,
    llama3 as llama3,
    pythia as pythia,
    qwen2 as qwen2,
)
from .model.cache import KeyCache as KeyCache
from .model.foreign import ForeignBackbone as ForeignBackbone, make_layer as make_layer
from .model.hugging_face import install as install
from .model.mixer import Mixer as Mixer
from .model.named_backbones import (
    babyberta_8m as babyberta_8m,
    gpt2_small as gpt2_small,
    icl as icl,
    llama2_1b2 as llama2_1b2,
    llama2_125m as llama2_125m,
    llama3_1b as llama3_1b,
    llama3_3b as llama3_3b,
    pythia_125m as pythia_125m,
    qwen1_5_0b5 as qwen1_5_0b5,
    qwen2_125m as qwen2_125m,
    sink_1b as sink_1b,
    sink_60m as sink_60m,
    tiny as tiny,
)
from .model.parameters import undecayed_parameters as undecayed_parameters
from .model.placement import Placement as Placement
from .model.transformer import Scalars as Scalars, Tokens as Tokens, Transformer as Transformer
from .number import (
    ByDepth as ByDepth,
    Contrast as Contrast,
    KeyVector as KeyVector,
    Matrix as Matrix,
    Number as Number,
    RunningMean as RunningMean,
    Vector as Vector,
)
from .operator import Operator as Operator, causal as causal
from .papers.affine_scaled import (
    affine_gated as affine_gated,
    affine_scaled as affine_scaled,
    gated_elements as gated_elements,
    gated_heads as gated_heads,
    learned_sink as learned_sink,
    off_by_one as off_by_one,
)
from .papers.attention_sinks import (
    elu_plus_one as elu_plus_one,
    elu_plus_one_normalised as elu_plus_one_normalised,
    fixed_value_bias as fixed_value_bias,
    identity as identity,
    identity_clamped as identity_clamped,
    key_bias as key_bias,
    key_value_bias as key_value_bias,
    linear_elu as linear_elu,
    linear_elu_unnormalised as linear_elu_unnormalised,
    mlp_kernel as mlp_kernel,
    mlp_kernel_unnormalised as mlp_kernel_unnormalised,
    prefix_lm as prefix_lm,
    scaled_softmax as scaled_softmax,
    sigmoid as sigmoid,
    sigmoid_normalised as sigmoid_normalised,
    sliding_window as sliding_window,
    value_bias as value_bias,
)
from .papers.beyond import (
    fox as fox,
    fox_decay_times as fox_decay_times,
    qk_norm as qk_norm,
    selective as selective,
    sigmoid_log_count as sigmoid_log_count,
    softcap as softcap,
    ssmax as ssmax,
    ssmax_biased as ssmax_biased,
)
from .papers.catalogue import (
    Limit as Limit,
    catalogue as catalogue,
    named_operator as named_operator,
    softmax as softmax,
)
from .papers.integral import (
    cog as cog,
    differential as differential,
    integral as integral,
    integral_control as integral_control,
    integral_weights as integral_weights,
)
from .papers.principled import (
    principled as principled,
    principled_gate as principled_gate,
    principled_ground as principled_ground,
    principled_margin as principled_margin,
)
from .papers.signed_averaging import (
    cosformer as cosformer,
    entmax15 as entmax15,
    four_scores as four_scores,
    sa_softmax as sa_softmax,
    soft_avg as soft_avg,
    sparsemax as sparsemax,
    ssa as ssa,
    ssa_released as ssa_released,
    temperature as temperature,
)
from .score_map import Scores as Scores
from .stages.extras import KeyBias as KeyBias, KeyValueBias as KeyValueBias
from .stages.families import (
    AttentionWeights as AttentionWeights,
    Extra as Extra,
    FeatureProduct as FeatureProduct,
    Forgetting as Forgetting,
    Gate as Gate,
    HeadNorm as HeadNorm,
    LogScore as LogScore,
    Margin as Margin,
    Merge as Merge,
    Normaliser as Normaliser,
    OutputGate as OutputGate,
    PlainScore as PlainScore,
    Preparation as Preparation,
    Product as Product,
    QueryKey as QueryKey,
    Readout as Readout,
    Rescale as Rescale,
    Score as Score,
    Transform as Transform,
    Visible as Visible,
)
from .stages.forgetting import (
    DecayTimes as DecayTimes,
    ForgetGate as ForgetGate,
    HeadDecay as HeadDecay,
    Selective as Selective,
)
from .stages.gates import Suppress as Suppress
from .stages.head_norms import RMS as RMS
from .stages.margins import LogCount as LogCount, SSMax as SSMax
from .stages.merges import Difference as Difference, MeanLogits as MeanLogits, MeanWeights as MeanWeights
from .stages.neutral import (
    NoExtra as NoExtra,
    NoForgetting as NoForgetting,
    NoGate as NoGate,
    NoHeadNorm as NoHeadNorm,
    NoMargin as NoMargin,
    NoOutputGate as NoOutputGate,
    NoPreparation as NoPreparation,
    NoRescale as NoRescale,
    NoTransform as NoTransform,
)
from .stages.normalisers import (
    Absolute as Absolute,
    AgainstCount as AgainstCount,
    Clamped as Clamped,
    Count as Count,
    Entmax15 as Entmax15,
    Ground as Ground,
    NoNormaliser as NoNormaliser,
    SelfAdjusted as SelfAdjusted,
    Sink as Sink,
    Sparsemax as Sparsemax,
    Total as Total,
)
from .stages.output_gates import PerChannel as PerChannel, PerHead as PerHead
from .stages.positions import (
    T5 as T5,
    Alibi as Alibi,
    Bucket as Bucket,
    Learned as Learned,
    NoPositions as NoPositions,
    Positions as Positions,
    Rotary as Rotary,
    Sinusoidal as Sinusoidal,
    Yarn as Yarn,
)
from .stages.preparations import RMSNorm as RMSNorm
from .stages.products import (
    MLP as MLP,
    CosFormer as CosFormer,
    Dot as Dot,
    LinearELU as LinearELU,
    ReluFeatures as ReluFeatures,
)
from .stages.readouts import GroundValue as GroundValue, ValueBias as ValueBias, Values as Values
from .stages.rescales import Affine as Affine, Scale as Scale
from .stages.scores import (
    SSA as SSA,
    EluPlusOne as EluPlusOne,
    Exponential as Exponential,
    HeadGroups as HeadGroups,
    Identity as Identity,
    Relu as Relu,
    Sigmoid as Sigmoid,
    SignedExponential as SignedExponential,
    Square as Square,
    Tanh as Tanh,
    Uniform as Uniform,
)
from .stages.signals import Signals as Signals
from .stages.stage import Stage as Stage, Tends as Tends
from .stages.transforms import Softcap as Softcap, Temperature as Temperature
from .stages.visible import Everything as Everything, Prefix as Prefix, Window as Window
