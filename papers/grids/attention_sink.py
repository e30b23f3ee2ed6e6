"""When Attention Sink Emerges (paper 004): its tables and figures as grids.

Every grid has the paper's default, softmax, with the same seeds. Sink shares are those of 100 sequences of 64 tokens.
"""

from collections.abc import Mapping, Sequence

from ablate import (
    T5,
    AdamW,
    Alibi,
    Bucket,
    Constant,
    Dimension,
    FirstToken,
    FixedToken,
    Grid,
    Learned,
    LearnedNumbers,
    MassiveActivation,
    Measure,
    NoIntervention,
    NoPositions,
    Operator,
    PaperGrids,
    PaperItem,
    PaperScale,
    Probing,
    SinkShare,
    Sinusoidal,
    Text,
    Training,
    Trial,
    elu_plus_one,
    elu_plus_one_normalised,
    fixed_value_bias,
    identity,
    identity_clamped,
    key_bias,
    key_value_bias,
    linear_elu,
    linear_elu_unnormalised,
    llama2,
    mlp_kernel,
    mlp_kernel_unnormalised,
    one_at_a_time,
    over,
    prefix_lm,
    scaled_softmax,
    sigmoid,
    sigmoid_normalised,
    sink_1b,
    sink_60m,
    sliding_window,
    softmax,
    value_bias,
    zipped,
)
from ablate.papers.grids.corpora import corpus, tokenizer
from ablate.papers.grids.sizes import name_size
from ablate.training.optimisers.recipes import sink_1b as recipe_1b, sink_60m as recipe_60m

_LOSS = Measure(name="validation_loss", scale="linear", rope=0.02, unit="nats per token")
_SEEDS = {"paper": range(1), "gpu": range(3), "cpu": range(3)}
_STEPS = {"gpu": 2000, "cpu": 500}


def _probing(*positions: int) -> Probing:
    shares = SinkShare(positions=positions or (1,))
    return Probing(probes=(shares, FirstToken(), MassiveActivation(), LearnedNumbers()), sequences=100, length=64)


def _training(scale: PaperScale) -> Training:
    if scale == "paper":
        return recipe_60m()
    return Training(
        steps=_STEPS[scale],
        optimiser=AdamW(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=Constant(warmup=50),
        clip=1.0,
        precision="bfloat16" if scale == "gpu" else "float32",
    )


def _base(scale: PaperScale) -> Trial:
    if scale == "paper":
        words = tokenizer("gpt-neox", 50_432, end="<|endoftext|>")
        task = Text(context=2048, batch=512, tokenizer=words, training_tokens=5_000_000_000, **corpus("pile"))
        model = sink_60m()
    else:
        context, batch, layers, width = {"gpu": (256, 64, 6, 384), "cpu": (64, 16, 2, 64)}[scale]
        task = Text(context=context, batch=batch)
        model = llama2(layers=layers, heads=8, width=width, feedforward_width=2 * width)
        model = model.changed(tied=False, initialisation="fan_in")
    return Trial(task=task, model=model, operator=softmax(), training=_training(scale), probing=_probing())


def _operators(scale: PaperScale, operators: Sequence[Operator]) -> Grid:
    """Softmax and others; those with a learned key show its sink at position 0."""
    without = [softmax(), *(each for each in operators if each.extra.label == "none")]
    keys = [each for each in operators if each.extra.label != "none"]
    grid = _over(_base(scale), over("operator", without), scale, baseline={"operator": "softmax"})
    if not keys:
        return grid
    return grid | _over(_base(scale).changed(operator=keys[0], probing=_probing(0, 1)), over("operator", keys), scale)


def _over(base: Trial, axis: Dimension, scale: PaperScale, baseline: Mapping[str, object] | None = None) -> Grid:
    return Grid(name="any", base=base, axes=[axis], seeds=_SEEDS[scale], baseline=baseline, measure=_LOSS)


def table1(scale: PaperScale) -> Grid:
    """Weight decay."""
    decays = over("training.optimiser.weight_decay", [0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0])
    return _over(_base(scale), decays, scale, baseline={"weight_decay": 0.1})


def table2(scale: PaperScale) -> Grid:
    """Position encodings; the released code adds the bucket of a distance itself, and T5 learns a bias for it."""
    base = _base(scale)
    schemes = [base.model.positions, NoPositions(), Sinusoidal(), Learned(count=base.task.length)]
    schemes += [Bucket(), T5(), Alibi()]
    return _over(base, over("model.positions", schemes), scale, baseline={"positions": base.model.positions})


def table3(scale: PaperScale) -> Grid:
    """Biases of attention, and a learned sink token."""
    token = over("model.sink_tokens", [1])
    grid = _operators(scale, [key_value_bias(), key_bias(), value_bias()])
    return grid | _over(_base(scale).changed(probing=_probing(1, 2)), token, scale)


def table6(scale: PaperScale) -> Grid:
    """Batch sizes at equal steps, in tokens."""
    base = _base(scale)
    sizes = [base.task.batch // 4, base.task.batch // 2, base.task.batch, base.task.batch * 2]
    labels = ["0.25M tokens", "0.5M tokens", "1M tokens", "2M tokens"] if scale == "paper" else None
    return _over(base, over("task.batch", sizes, labels=labels), scale, baseline={"batch": base.task.batch})


def table7(scale: PaperScale) -> Grid:
    """One fixed token in every window."""
    token = 1 if scale == "paper" else None
    fixed = [FixedToken(position=position, token=token) for position in (1, 2, 3)]
    axis = over(
        "task.intervention", [NoIntervention(), *fixed], labels=["none", *(f"fixed {each.position}" for each in fixed)]
    )
    return _over(_base(scale).changed(probing=_probing(1, 2, 3, 4)), axis, scale, baseline={"intervention": "none"})


def table8(scale: PaperScale) -> Grid:
    """Activations of the feed-forward part at one width, as in the released code; a gate has more parameters."""
    kinds = over("model.feedforward", ["swiglu", "relu", "gelu", "swish", "reglu", "geglu"])
    return _over(_base(scale), kinds, scale, baseline={"feedforward": "swiglu"})


def table9(scale: PaperScale) -> Grid:
    """Heads, and heads whose outputs are added."""
    base = _base(scale)
    added = over("model.head_outputs", ["added"])
    return _over(base, over("model.heads", [8, 4, 2, 1]), scale, baseline={"heads": 8}) | _over(base, added, scale)


def table10(scale: PaperScale) -> Grid:
    """Learned keys whose values have a fixed norm, along one channel or all; 0 is the K biases."""
    root = _base(scale).model.head_width ** 0.5
    fixed = [fixed_value_bias(m, name=f"{m:g} v'") for m in (1.0, 5.0, 20.0)]
    fixed += [fixed_value_bias(m / root, along="all", name=f"{m:g} v''") for m in (1.0, 5.0, 20.0)]
    return _operators(scale, [key_bias(), *fixed])


def table11(scale: PaperScale) -> Grid:
    """Biases that the heads of a layer share, and biases of each head."""
    shared = [key_value_bias(shared=True, name="KV biases, shared"), key_bias(shared=True, name="K biases, shared")]
    return _operators(scale, [key_value_bias(), key_bias(), *shared])


def table12(scale: PaperScale) -> Grid:
    """Softmax whose weights sum to alpha."""
    return _operators(scale, [scaled_softmax(alpha, name=f"sum {alpha:g}") for alpha in (2.0, 0.2, 0.1, 0.02)])


def table13(scale: PaperScale) -> Grid:
    """Kernels and normalisers; the paper reports that three of them failed to train."""
    kernels = [sigmoid(), sigmoid_normalised(), elu_plus_one(), elu_plus_one_normalised(), linear_elu()]
    kernels += [linear_elu_unnormalised(), identity_clamped(), identity(), mlp_kernel(), mlp_kernel_unnormalised()]
    return _operators(scale, kernels)


def table14(scale: PaperScale) -> Grid:
    """Sigmoid without normalisation by learning rate and weight decay, and softmax."""
    base = _base(scale)
    rate = base.training.optimiser.lr
    pairs = [(rate, 0.0), (rate, 0.1), (rate, 0.5), (rate, 1.0), (2.5 * rate, 0.1), (rate / 4, 0.1)]
    axis = over(
        "training.optimiser",
        [base.training.optimiser.changed(lr=lr, weight_decay=decay) for lr, decay in pairs],
        labels=[f"lr {lr:g}, decay {decay:g}" for lr, decay in pairs],
    )
    plain = _over(base, over("operator", [softmax()]), scale, baseline={"operator": "softmax"})
    return plain | _over(base.changed(operator=sigmoid()), axis, scale)


def figure2(scale: PaperScale) -> Grid:
    """Loss and sinks in training, by learning rate, amount of data and window."""
    base = _base(scale)
    rate, steps = base.training.optimiser.lr, base.training.steps
    whole = base.task.training_tokens
    data = [tokens * 10**6 for tokens in (2500, 500, 200, 100, 50)] if scale == "paper" else [10**6, 10**5, 10**4]
    if scale == "paper":
        sizes = [1024, 512, 256, 128, 64, 32]
        lengths = {rate: steps, 1e-3: steps, 1e-4: 2 * steps, 1e-5: 4 * steps}
        made = base.training.optimiser.changed
        rates = over(
            "training",
            [
                base.training.changed(optimiser=made(lr=lr), steps=n, evaluate_every=n // 20)
                for lr, n in lengths.items()
            ],
            labels=[f"{lr:g}" for lr in lengths],
            name="lr",
        )
    else:
        sizes = [size for size in (64, 16, 4) if size < base.task.length]
        rates = over("training.optimiser.lr", [rate, rate * 2.5, rate / 4, rate / 16])
    base = base.changed(training=base.training.changed(evaluate_every=steps // 20))
    axes = one_at_a_time(
        rates,
        over("task.training_tokens", [whole, *data]),
        over("operator", [softmax(), *(sliding_window(size, name=f"window {size}") for size in sizes)]),
    )
    return _over(base, axes, scale)


def figure3(scale: PaperScale) -> Grid:
    """Sinks by position with a prefix that is not predicted, and with windows."""
    base = _base(scale).changed(probing=_probing(*range(1, 11)))
    lengths = [2, 3, 4, 5, 10]
    prefixes = zipped(
        over("operator", [prefix_lm(p, name=f"prefix {p}") for p in lengths]), over("task.prefix", lengths)
    )
    windows = [softmax(), *(sliding_window(size, name=f"window {size}") for size in (4, 16, 32))]
    plain = _over(base, over("operator", windows), scale, baseline={"operator": "softmax"})
    return plain | _over(base, prefixes, scale)


def figure4(scale: PaperScale) -> Grid:
    """Massive activations of softmax and sigmoid by size; other panels come with tables 3 and 13."""
    base = _base(scale)
    if scale == "paper":
        large = base.changed(model=sink_1b(), training=recipe_1b())
    else:
        large = base.changed(model=base.model.changed(layers=2 * base.model.layers, width=2 * base.model.width))
    kinds = over("operator", [softmax(), sigmoid()])
    sizes = {"60M": base, "1B": large}
    named = {name: over("model", [each.model], labels=[name_size(name, each, scale)]) for name, each in sizes.items()}
    grids = [
        Grid(name="any", base=each, axes=[named[name], kinds], seeds=_SEEDS[scale], measure=_LOSS)
        for name, each in sizes.items()
    ]
    return grids[0] | grids[1]


def figure8(scale: PaperScale) -> Grid:
    """Massive activations with the norm before and after each part; the right panel comes with table 10."""
    return _over(_base(scale), over("model.norm_position", ["pre", "post"]), scale, baseline={"norm_position": "pre"})


_PUBLIC = (
    "public checkpoints, which no grid trains: `probe_checkpoint` measures one in a local directory, as docs/probes.md "
    "shows"
)

paper = PaperGrids(
    "004",
    [
        *(PaperItem(make.__name__, make) for make in (table1, table2, table3)),
        PaperItem("table4", of="table13"),
        PaperItem("table5", reason=_PUBLIC),
        *(PaperItem(make.__name__, make) for make in (table6, table7, table8, table9, table10, table11, table12)),
        *(PaperItem(make.__name__, make) for make in (table13, table14)),
        PaperItem("figure1", reason=_PUBLIC),
        PaperItem("figure2", figure2),
        PaperItem("figure3", figure3),
        PaperItem("figure4", figure4),
        PaperItem("figure5", reason="a schematic of blocks and of packed documents"),
        PaperItem("figure6", reason=_PUBLIC),
        PaperItem("figure7", reason=_PUBLIC),
        PaperItem("figure8", figure8),
    ],
)
