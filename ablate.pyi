"""Every public name, for editors and type checkers; `ablate.py` imports each when it is first used."""

from dashboards import (
    change_by as change_by,
)
from dashboards import (
    differences as differences,
)
from dashboards import (
    error_by as error_by,
)
from dashboards import (
    error_map as error_map,
)
from dashboards import (
    failure_rates as failure_rates,
)
from dashboards import (
    learned_numbers as learned_numbers,
)
from dashboards import (
    main_effects as main_effects,
)
from dashboards import (
    progress as progress,
)
from dashboards import (
    report as report,
)
from dashboards import (
    training_curves as training_curves,
)
from dashboards import (
    write_report as write_report,
)
from grid import (
    FROZEN as FROZEN,
)
from grid import (
    SPEC_SCHEMA as SPEC_SCHEMA,
)
from grid import (
    AblateError as AblateError,
)
from grid import (
    Axis as Axis,
)
from grid import (
    Bundle as Bundle,
)
from grid import (
    Choice as Choice,
)
from grid import (
    Dimension as Dimension,
)
from grid import (
    EnvironmentProblem as EnvironmentProblem,
)
from grid import (
    FrozenDict as FrozenDict,
)
from grid import (
    Grid as Grid,
)
from grid import (
    Label as Label,
)
from grid import (
    Measure as Measure,
)
from grid import (
    NotFoundError as NotFoundError,
)
from grid import (
    OutsideKey as OutsideKey,
)
from grid import (
    Planned as Planned,
)
from grid import (
    Rule as Rule,
)
from grid import (
    Spec as Spec,
)
from grid import (
    SpecDifference as SpecDifference,
)
from grid import (
    SpecError as SpecError,
)
from grid import (
    StoreError as StoreError,
)
from grid import (
    canonical_json as canonical_json,
)
from grid import (
    cell_key as cell_key,
)
from grid import (
    content_key as content_key,
)
from grid import (
    diff as diff,
)
from grid import (
    forbid as forbid,
)
from grid import (
    has as has,
)
from grid import (
    one_at_a_time as one_at_a_time,
)
from grid import (
    over as over,
)
from grid import (
    spec_error as spec_error,
)
from grid import (
    value_at as value_at,
)
from grid import (
    zipped as zipped,
)
from runners import (
    WSD as WSD,
)
from runners import (
    AdamW as AdamW,
)
from runners import (
    AskedLengths as AskedLengths,
)
from runners import (
    AssociativeRecall as AssociativeRecall,
)
from runners import (
    AttentionEntropy as AttentionEntropy,
)
from runners import (
    AttentionMaps as AttentionMaps,
)
from runners import (
    BoundaryValues as BoundaryValues,
)
from runners import (
    BytePairs as BytePairs,
)
from runners import (
    Bytes as Bytes,
)
from runners import (
    Constant as Constant,
)
from runners import (
    Cosine as Cosine,
)
from runners import (
    Curriculum as Curriculum,
)
from runners import (
    DeviantInputs as DeviantInputs,
)
from runners import (
    Distillation as Distillation,
)
from runners import (
    EffectiveRank as EffectiveRank,
)
from runners import (
    Execution as Execution,
)
from runners import (
    FinishedTrial as FinishedTrial,
)
from runners import (
    FirstKey as FirstKey,
)
from runners import (
    FirstToken as FirstToken,
)
from runners import (
    FixedToken as FixedToken,
)
from runners import (
    GateSparsity as GateSparsity,
)
from runners import (
    GradientNorms as GradientNorms,
)
from runners import (
    Grammar as Grammar,
)
from runners import (
    GroundMass as GroundMass,
)
from runners import (
    HubText as HubText,
)
from runners import (
    HuggingFaceModel as HuggingFaceModel,
)
from runners import (
    Induction as Induction,
)
from runners import (
    LargeValue as LargeValue,
)
from runners import (
    LearnedNumbers as LearnedNumbers,
)
from runners import (
    LengthExtrapolation as LengthExtrapolation,
)
from runners import (
    LengthGrid as LengthGrid,
)
from runners import (
    Linear as Linear,
)
from runners import (
    LinearFunctions as LinearFunctions,
)
from runners import (
    LmEval as LmEval,
)
from runners import (
    LongContext as LongContext,
)
from runners import (
    MaskedText as MaskedText,
)
from runners import (
    MassiveActivation as MassiveActivation,
)
from runners import (
    MinimalPairs as MinimalPairs,
)
from runners import (
    MultipleChoice as MultipleChoice,
)
from runners import (
    Muon as Muon,
)
from runners import (
    Needle as Needle,
)
from runners import (
    Needs as Needs,
)
from runners import (
    NoIntervention as NoIntervention,
)
from runners import (
    Optimiser as Optimiser,
)
from runners import (
    PredictedNumbers as PredictedNumbers,
)
from runners import (
    Probe as Probe,
)
from runners import (
    Probing as Probing,
)
from runners import (
    Prompt as Prompt,
)
from runners import (
    QKLogits as QKLogits,
)
from runners import (
    Quantifiers as Quantifiers,
)
from runners import (
    RandomTokens as RandomTokens,
)
from runners import (
    RunOptions as RunOptions,
)
from runners import (
    RunResult as RunResult,
)
from runners import (
    Schedule as Schedule,
)
from runners import (
    SelectiveCopy as SelectiveCopy,
)
from runners import (
    ShiftGrid as ShiftGrid,
)
from runners import (
    SinkShare as SinkShare,
)
from runners import (
    Slurm as Slurm,
)
from runners import (
    Stretch as Stretch,
)
from runners import (
    Task as Task,
)
from runners import (
    Teacher as Teacher,
)
from runners import (
    Text as Text,
)
from runners import (
    TokenClasses as TokenClasses,
)
from runners import (
    TokenizerFile as TokenizerFile,
)
from runners import (
    Training as Training,
)
from runners import (
    Trial as Trial,
)
from runners import (
    UncorrectedAdamW as UncorrectedAdamW,
)
from runners import (
    WeightSums as WeightSums,
)
from runners import (
    run_campaign as run_campaign,
)
from store import (
    BadShard as BadShard,
)
from store import (
    Campaign as Campaign,
)
from store import (
    Ingested as Ingested,
)
from store import (
    Layout as Layout,
)
from store import (
    ShardBuffer as ShardBuffer,
)
from store import (
    Store as Store,
)
from store import (
    TrialState as TrialState,
)
from store import (
    publish as publish,
)
from store import (
    trial_state as trial_state,
)
from store import (
    verify_shard as verify_shard,
)
from store import (
    write_shard as write_shard,
)
from variants import (
    MLP as MLP,
)
from variants import (
    RMS as RMS,
)
from variants import (
    SSA as SSA,
)
from variants import (
    T5 as T5,
)
from variants import (
    Absolute as Absolute,
)
from variants import (
    Affine as Affine,
)
from variants import (
    AgainstCount as AgainstCount,
)
from variants import (
    Alibi as Alibi,
)
from variants import (
    AttentionOutput as AttentionOutput,
)
from variants import (
    AttentionWeights as AttentionWeights,
)
from variants import (
    Backbone as Backbone,
)
from variants import (
    Bucket as Bucket,
)
from variants import (
    ByDepth as ByDepth,
)
from variants import (
    Clamped as Clamped,
)
from variants import (
    Contrast as Contrast,
)
from variants import (
    CosFormer as CosFormer,
)
from variants import (
    Count as Count,
)
from variants import (
    Difference as Difference,
)
from variants import (
    Dot as Dot,
)
from variants import (
    EluPlusOne as EluPlusOne,
)
from variants import (
    Entmax15 as Entmax15,
)
from variants import (
    Everything as Everything,
)
from variants import (
    Exponential as Exponential,
)
from variants import (
    Extra as Extra,
)
from variants import (
    FeatureProduct as FeatureProduct,
)
from variants import (
    ForgetGate as ForgetGate,
)
from variants import (
    Forgetting as Forgetting,
)
from variants import (
    Gate as Gate,
)
from variants import (
    Ground as Ground,
)
from variants import (
    GroundValue as GroundValue,
)
from variants import (
    HeadGroups as HeadGroups,
)
from variants import (
    HeadNorm as HeadNorm,
)
from variants import (
    Heads as Heads,
)
from variants import (
    Identity as Identity,
)
from variants import (
    KeyBias as KeyBias,
)
from variants import (
    KeyValueBias as KeyValueBias,
)
from variants import (
    KeyVector as KeyVector,
)
from variants import (
    Learned as Learned,
)
from variants import (
    Limit as Limit,
)
from variants import (
    LinearELU as LinearELU,
)
from variants import (
    LogCount as LogCount,
)
from variants import (
    LogScore as LogScore,
)
from variants import (
    Margin as Margin,
)
from variants import (
    Matrix as Matrix,
)
from variants import (
    MeanLogits as MeanLogits,
)
from variants import (
    MeanWeights as MeanWeights,
)
from variants import (
    Merge as Merge,
)
from variants import (
    NoExtra as NoExtra,
)
from variants import (
    NoForgetting as NoForgetting,
)
from variants import (
    NoGate as NoGate,
)
from variants import (
    NoHeadNorm as NoHeadNorm,
)
from variants import (
    NoMargin as NoMargin,
)
from variants import (
    NoNormaliser as NoNormaliser,
)
from variants import (
    NoOutputGate as NoOutputGate,
)
from variants import (
    NoPositions as NoPositions,
)
from variants import (
    NoPreparation as NoPreparation,
)
from variants import (
    NoRescale as NoRescale,
)
from variants import (
    Normaliser as Normaliser,
)
from variants import (
    NoTransform as NoTransform,
)
from variants import (
    Number as Number,
)
from variants import (
    Operator as Operator,
)
from variants import (
    OutputGate as OutputGate,
)
from variants import (
    PerChannel as PerChannel,
)
from variants import (
    PerHead as PerHead,
)
from variants import (
    Placement as Placement,
)
from variants import (
    PlainScore as PlainScore,
)
from variants import (
    Positions as Positions,
)
from variants import (
    Prefix as Prefix,
)
from variants import (
    Preparation as Preparation,
)
from variants import (
    Product as Product,
)
from variants import (
    QueryKey as QueryKey,
)
from variants import (
    Readout as Readout,
)
from variants import (
    Relu as Relu,
)
from variants import (
    ReluFeatures as ReluFeatures,
)
from variants import (
    Rescale as Rescale,
)
from variants import (
    RMSNorm as RMSNorm,
)
from variants import (
    Rotary as Rotary,
)
from variants import (
    RunningMean as RunningMean,
)
from variants import (
    Scalars as Scalars,
)
from variants import (
    Scale as Scale,
)
from variants import (
    Score as Score,
)
from variants import (
    Scores as Scores,
)
from variants import (
    Selective as Selective,
)
from variants import (
    SelfAdjusted as SelfAdjusted,
)
from variants import (
    Sigmoid as Sigmoid,
)
from variants import (
    Signals as Signals,
)
from variants import (
    SignedExponential as SignedExponential,
)
from variants import (
    Sink as Sink,
)
from variants import (
    Sinusoidal as Sinusoidal,
)
from variants import (
    Softcap as Softcap,
)
from variants import (
    Sparsemax as Sparsemax,
)
from variants import (
    Square as Square,
)
from variants import (
    SSMax as SSMax,
)
from variants import (
    Stage as Stage,
)
from variants import (
    Suppress as Suppress,
)
from variants import (
    Tanh as Tanh,
)
from variants import (
    Temperature as Temperature,
)
from variants import (
    Tends as Tends,
)
from variants import (
    Tokens as Tokens,
)
from variants import (
    Total as Total,
)
from variants import (
    Transform as Transform,
)
from variants import (
    Transformer as Transformer,
)
from variants import (
    Uniform as Uniform,
)
from variants import (
    ValueBias as ValueBias,
)
from variants import (
    Values as Values,
)
from variants import (
    Vector as Vector,
)
from variants import (
    Visible as Visible,
)
from variants import (
    Window as Window,
)
from variants import (
    Yarn as Yarn,
)
from variants import (
    affine_gated as affine_gated,
)
from variants import (
    affine_scaled as affine_scaled,
)
from variants import (
    attend as attend,
)
from variants import (
    babyberta as babyberta,
)
from variants import (
    babyberta_8m as babyberta_8m,
)
from variants import (
    catalogue as catalogue,
)
from variants import (
    causal as causal,
)
from variants import (
    cog as cog,
)
from variants import (
    cosformer as cosformer,
)
from variants import (
    differential as differential,
)
from variants import (
    elu_plus_one as elu_plus_one,
)
from variants import (
    elu_plus_one_normalised as elu_plus_one_normalised,
)
from variants import (
    entmax15 as entmax15,
)
from variants import (
    fixed_value_bias as fixed_value_bias,
)
from variants import (
    four_scores as four_scores,
)
from variants import (
    fox as fox,
)
from variants import (
    gated_elements as gated_elements,
)
from variants import (
    gated_heads as gated_heads,
)
from variants import (
    gpt2 as gpt2,
)
from variants import (
    gpt2_small as gpt2_small,
)
from variants import (
    granularities as granularities,
)
from variants import (
    icl as icl,
)
from variants import (
    identity as identity,
)
from variants import (
    identity_clamped as identity_clamped,
)
from variants import (
    integral as integral,
)
from variants import (
    integral_control as integral_control,
)
from variants import (
    integral_weights as integral_weights,
)
from variants import (
    key_bias as key_bias,
)
from variants import (
    key_value_bias as key_value_bias,
)
from variants import (
    learned_sink as learned_sink,
)
from variants import (
    linear_elu as linear_elu,
)
from variants import (
    linear_elu_unnormalised as linear_elu_unnormalised,
)
from variants import (
    llama2 as llama2,
)
from variants import (
    llama2_1b2 as llama2_1b2,
)
from variants import (
    llama2_125m as llama2_125m,
)
from variants import (
    llama3 as llama3,
)
from variants import (
    llama3_1b as llama3_1b,
)
from variants import (
    llama3_3b as llama3_3b,
)
from variants import (
    mlp_kernel as mlp_kernel,
)
from variants import (
    mlp_kernel_unnormalised as mlp_kernel_unnormalised,
)
from variants import (
    named as named,
)
from variants import (
    off_by_one as off_by_one,
)
from variants import (
    prefix_lm as prefix_lm,
)
from variants import (
    principled as principled,
)
from variants import (
    principled_gate as principled_gate,
)
from variants import (
    principled_ground as principled_ground,
)
from variants import (
    principled_margin as principled_margin,
)
from variants import (
    pythia as pythia,
)
from variants import (
    pythia_125m as pythia_125m,
)
from variants import (
    qk_norm as qk_norm,
)
from variants import (
    qwen1_5_0b5 as qwen1_5_0b5,
)
from variants import (
    qwen2 as qwen2,
)
from variants import (
    qwen2_125m as qwen2_125m,
)
from variants import (
    sa_softmax as sa_softmax,
)
from variants import (
    scaled_softmax as scaled_softmax,
)
from variants import (
    selective as selective,
)
from variants import (
    sigmoid as sigmoid,
)
from variants import (
    sigmoid_log_count as sigmoid_log_count,
)
from variants import (
    sigmoid_normalised as sigmoid_normalised,
)
from variants import (
    sink_1b as sink_1b,
)
from variants import (
    sink_60m as sink_60m,
)
from variants import (
    sliding_window as sliding_window,
)
from variants import (
    soft_avg as soft_avg,
)
from variants import (
    softcap as softcap,
)
from variants import (
    softmax as softmax,
)
from variants import (
    sparsemax as sparsemax,
)
from variants import (
    ssa as ssa,
)
from variants import (
    ssmax as ssmax,
)
from variants import (
    temperature as temperature,
)
from variants import (
    tiny as tiny,
)
from variants import (
    value_bias as value_bias,
)
