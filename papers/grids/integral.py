"""Integral Transformer (paper 002): its tables and figures as grids.

Softmax at scale 1/sqrt(S d), `integral_control`, stands beside every Integral cell of S signals. Without rotary
positions per signal the two are the same function.
"""

from ablate import (
    AdamW,
    AttentionEntropy,
    Backbone,
    Cosine,
    Dimension,
    EffectiveRank,
    FirstToken,
    Grid,
    LearnedNumbers,
    LmEval,
    Measure,
    Operator,
    PaperGrids,
    PaperItem,
    PaperScale,
    Placement,
    Probing,
    Stretch,
    Text,
    TokenClasses,
    Training,
    Trial,
    cog,
    differential,
    integral,
    integral_control,
    integral_weights,
    llama2,
    llama2_1b2,
    llama2_125m,
    over,
    pythia,
    pythia_125m,
    qwen2,
    qwen2_125m,
    softmax,
)
from ablate.papers.grids.corpora import corpus, tokenizer
from ablate.papers.grids.sizes import name_size
from ablate.training.optimisers.recipes import integral_125m, integral_1200m

_LOSS = Measure(name="validation_loss", scale="linear", rope=0.02, unit="nats per token")
_SEEDS = {"paper": range(1), "gpu": range(3), "cpu": range(3)}
_SETS = ("winogrande", "arc_easy", "arc_challenge", "hellaswag", "piqa", "openbookqa", "boolq", "mmlu")
_LONG: tuple[str, ...] = (
    "multifieldqa_en",
    "narrativeqa",
    "qasper",
    "2wikimqa",
    "hotpotqa",
    "musique",
    "gov_report",
    "multi_news",
)
_LONG += ("qmsum", "lcc", "repobench-p", "passage_count", "passage_retrieval_en", "samsum", "trec", "triviaqa")
_TOP = Placement(share=0.5)


def _models(scale: PaperScale) -> dict[str, Backbone]:
    """The backbones of table 4, and the large model; those of gpu and cpu are small."""
    if scale == "paper":
        small = {"llama2": llama2_125m(), "pythia": pythia_125m(), "qwen2": qwen2_125m()}
        return small | {"1.2B": llama2_1b2()}
    layers, width = {"gpu": (6, 512), "cpu": (2, 128)}[scale]
    sizes = {"layers": layers, "heads": 8, "width": width}
    return {
        "llama2": llama2(**sizes, feedforward_width=3 * width // 2),
        "pythia": pythia(**sizes, feedforward_width=9 * width // 4).changed(tied=True),
        "qwen2": qwen2(**sizes, feedforward_width=3 * width // 2),
        "1.2B": llama2(layers=2 * layers, heads=8, width=width, feedforward_width=3 * width // 2),
    }


def _base(scale: PaperScale) -> Trial:
    probes = (
        FirstToken(by_query=True),
        AttentionEntropy(),
        TokenClasses(by="closed_class"),
        EffectiveRank(),
        LearnedNumbers(),
    )
    model = _models(scale)["llama2"]
    if scale == "paper":
        words = tokenizer("mixtral", 32_000, end="</s>")
        return Trial(
            task=Text(context=2048, batch=1024, tokenizer=words, **corpus("cosmopedia-v2")),
            model=model,
            operator=softmax(),
            training=integral_125m(),
            probing=Probing(probes=probes, sequences=200, length=256),
            evaluations=(LmEval(tasks=_SETS, fewshot=0),),
        )
    context, batch, steps = {"gpu": (256, 64, 2000), "cpu": (64, 16, 300)}[scale]
    return Trial(
        task=Text(context=context, batch=batch),
        model=model,
        operator=softmax(),
        training=Training(
            steps=steps,
            optimiser=AdamW(lr=1e-3),
            schedule=Cosine(warmup=steps // 10),
            clip=1.0,
            precision="bfloat16" if scale == "gpu" else "float32",
        ),
        probing=Probing(probes=probes, sequences=16, length=64),
    )


def _large(scale: PaperScale) -> Trial:
    large = _base(scale).changed(model=_models(scale)["1.2B"])
    if scale != "paper":
        return large
    return large.changed(task=large.task.changed(**corpus("smollm-corpus")), training=integral_1200m())


def _grid(scale: PaperScale, base: Trial, *axes: Dimension, baseline: str = "") -> Grid:
    named = {"operator": baseline} if baseline else None
    return Grid(name="any", base=base, axes=list(axes), seeds=_SEEDS[scale], baseline=named, measure=_LOSS)


def _changes(trial: Trial) -> bool:
    """True for an operator that a placement changes: softmax in some layers is softmax in all."""
    return bool(trial.operator.key != softmax().key)


def _placements(*placements: Placement) -> Dimension:
    return over("placement", list(placements), when=_changes)


def table1(scale: PaperScale) -> Grid:
    """Softmax, Cog, Differential and Integral attention in the upper half and in all layers, at two sizes."""
    operators: list[Operator] = [softmax(), cog(), differential(), integral(8), integral_control(8)]
    small = _of_size(scale, _base(scale), "125M", operators, baseline="softmax")
    return small | _of_size(scale, _large(scale), "1.2B", [softmax(), *operators[2:]])


def _of_size(scale: PaperScale, base: Trial, size: str, operators: list[Operator], baseline: str = "") -> Grid:
    model = over("model", [base.model], labels=[name_size(size, base, scale)])
    kinds = over("operator", operators)
    return _grid(scale, base, model, kinds, _placements(_TOP, Placement()), baseline=baseline)


def table6(scale: PaperScale) -> Grid:
    """Sixteen sets of LongBench with positions stretched fourfold."""
    stretch = Stretch(factor=4.0, original=2048)
    long = LmEval(tasks=tuple(f"longbench_{name}" for name in _LONG), context=8192, scaling=stretch)
    kinds = over("operator", [softmax(), differential(), integral(8), integral_control(8)])
    return _grid(scale, _large(scale).changed(evaluations=(long,)), kinds, _placements(_TOP), baseline="softmax")


def table8(scale: PaperScale) -> Grid:
    """The signal: logits or outputs of softmax, in the upper half."""
    kinds = over("operator", [softmax(), integral(2), integral_weights(2), integral_control(2)])
    return _grid(scale, _base(scale), kinds, _placements(_TOP), baseline="softmax")


def table9(scale: PaperScale) -> Grid:
    """The layers that have Integral attention."""
    where = [Placement(share=0.25), _TOP, Placement(share=0.75), Placement(), Placement(share=0.5, side="bottom")]
    if scale == "cpu":
        where = [_TOP, Placement(), Placement(share=0.5, side="bottom")]  # two layers have no quarters
    kinds = over("operator", [softmax(), integral(2), integral_control(2)])
    return _grid(scale, _base(scale), kinds, _placements(*where), baseline="softmax")


def table10(scale: PaperScale) -> Grid:
    """Heads and signals; cpu has half as many heads, since a signal has two channels or more."""
    kinds = [softmax(), *(make(signals) for signals in (2, 4, 8) for make in (integral, integral_control))]
    heads = over("model.heads", [4, 8] if scale == "cpu" else [8, 16])
    return _grid(scale, _base(scale), heads, over("operator", kinds), _placements(_TOP), baseline="softmax")


def table11(scale: PaperScale) -> Grid:
    """Softmax by number of heads."""
    return _grid(scale, _base(scale), over("model.heads", [4, 8, 16, 32]))


def table12(scale: PaperScale) -> Grid:
    """Softmax and Integral attention in all layers of three backbones."""
    models = {name: model for name, model in _models(scale).items() if name != "1.2B"}
    backbones = over("model", list(models.values()), labels=list(models), name="backbone")
    kinds = over("operator", [softmax(), integral(2), integral_control(2)])
    return _grid(scale, _base(scale), backbones, kinds, baseline="softmax")


paper = PaperGrids(
    "002",
    [
        PaperItem("table1", table1),
        PaperItem("table2", of="table9"),
        PaperItem("table3", of="table10"),
        PaperItem("table4", of="table12"),
        PaperItem("table5", of="table1"),
        PaperItem("table6", table6, scales=("paper",)),
        PaperItem("table7", of="table1"),
        PaperItem("table8", table8),
        PaperItem("table9", table9),
        PaperItem("table10", table10),
        PaperItem("table11", table11),
        PaperItem("table12", table12),
        PaperItem("figure1", of="table1"),
        PaperItem("figure2", reason="a schematic of three heads"),
        *(PaperItem(f"figure{number}", of="table1") for number in (3, 4, 5)),
    ],
)
