"""Scaled Signed Averaging (paper 003): its tables and figures as grids.

Softmax and every other score share seeds, hence initial weights and batches. The task records two predictors without
a model on the same prompts: least squares, which is linear in the points, and zero. Quantifiers record both constants.
"""

from ablate import (
    AdamW,
    AttentionMaps,
    Backbone,
    BoundaryValues,
    Cosine,
    Curriculum,
    DeviantInputs,
    Grid,
    LargeValue,
    LengthGrid,
    LinearFunctions,
    LmEval,
    MaskedText,
    Measure,
    Operator,
    PaperGrids,
    PaperItem,
    PaperScale,
    Probing,
    Quantifiers,
    ShiftGrid,
    Text,
    Training,
    Trial,
    babyberta,
    babyberta_8m,
    cosformer,
    entmax15,
    four_scores,
    gpt2,
    gpt2_small,
    icl,
    over,
    sa_softmax,
    soft_avg,
    softmax,
    sparsemax,
    ssa,
    ssa_released,
    temperature,
)
from ablate.papers.grids.corpora import corpus, tokenizer, zorro
from ablate.training.optimisers.recipes import (
    babyberta as babyberta_recipe,
    scaled_signed_averaging_gpt2,
    scaled_signed_averaging_in_context as in_context_recipe,
)

_SIGMAS = tuple(map(float, range(1, 11)))
_ERROR = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}, scale="log", rope=0.1, unit="squared output units")
_ANSWERS = Measure(name="error_rate", scale="linear", rope=0.02, unit="share of sequences")
_LOSS = Measure(name="validation_loss", scale="linear", rope=0.01, unit="nats per token")
_SEEDS = {"paper": range(3), "gpu": range(5), "cpu": range(5)}


def _short(steps: int, lr: float) -> Training:
    return Training(
        steps=steps, optimiser=AdamW(lr=lr, betas=(0.9, 0.99)), schedule=Cosine(warmup=steps // 12), clip=1.0
    )


_TRAINING = {"paper": in_context_recipe(), "gpu": _short(6000, 1e-3), "cpu": _short(1000, 3e-3)}
_POINTS = {"paper": 40, "gpu": 20, "cpu": 11}


def _model(scale: PaperScale, layers: int = 0, heads: int = 0, *, feedforward: bool = True) -> Backbone:
    """The model of the scale, or one of another depth and number of heads."""
    width, positions = {"paper": (256, 512), "gpu": (128, 64), "cpu": (64, 40)}[scale]
    usual = {"paper": (12, 8), "gpu": (4, 8), "cpu": (2, 4)}[scale]
    if scale == "paper":
        model = icl().changed(layers=layers or usual[0], heads=heads or usual[1])
    else:
        smaller = gpt2(layers=layers or usual[0], heads=heads or usual[1], width=width, max_positions=positions)
        model = smaller.changed(initialisation="gpt2_scalars")
    return model if feedforward else model.changed(feedforward="none", feedforward_width=0)


def _functions(scale: PaperScale) -> Trial:
    points = _POINTS[scale]
    few = {"functions": 50, "sequences": 8} if scale == "cpu" else {}
    curriculum = {"paper": Curriculum(), "gpu": Curriculum(start=6, every=600), "cpu": None}[scale]
    return Trial(
        task=LinearFunctions(
            points=points,
            batch=32 if scale == "cpu" else 64,
            curriculum=curriculum,
            evaluation=ShiftGrid(sigma_x=(1.0, 3.0) if scale == "cpu" else _SIGMAS, points=points, **few),
        ),
        model=_model(scale),
        operator=softmax(),
        training=_TRAINING[scale],
        evaluations=(
            DeviantInputs(points=points, **few),
            BoundaryValues(points=points, contexts=4 if scale == "cpu" else 16),
        ),
    )


def table1(scale: PaperScale) -> Grid:
    """Squared error of the scores under shifted functions; the prompted Llama 3.3 is left out."""
    others: list[Operator] = [sparsemax(), entmax15(), *(temperature(tau) for tau in (5.0, 10.0, 20.0, 50.0, 100.0))]
    others += [soft_avg(), four_scores(), cosformer(), sa_softmax()]
    taus = [f"tau={tau}" for tau in (5, 10, 20, 50, 100)]
    labels = ["SSA", "softmax", "Sparsemax", "Entmax-1.5", *taus, "SOFT/AVG", "four scores", "cosFormer", "SA-Softmax"]
    if scale == "paper":  # the released code starts from other values
        others, labels = [*others, ssa_released()], [*labels, "SSA as released"]
    return Grid(
        name="table1",
        base=_functions(scale),
        axes=[over("operator", [ssa(), softmax(), *others], labels=labels)],
        seeds=range(3) if scale == "cpu" else _SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_ERROR,
    )


def confirmation(scale: PaperScale) -> Grid:
    """SSA and softmax of table 1 alone, on new seeds: at its noise, 90 find 10 % with 80 % power."""
    return Grid(
        name="confirmation",
        base=_functions(scale),
        axes=[over("operator", [ssa(), softmax()], labels=["SSA", "softmax"])],
        seeds=range(100, 200),
        baseline={"operator": "softmax"},
        measure=_ERROR,
    )


_LM_EVAL = ("arc_challenge", "arc_easy", "hellaswag", "lambada_openai")
_SUPERGLUE = ("boolq", "cb", "copa", "multirc", "rte", "wic", "wsc")


def _language(scale: PaperScale) -> Trial:
    if scale == "paper":
        text = corpus("fineweb")
        task = Text(context=1024, batch=192, tokenizer=tokenizer("gpt2", 50_257, end="<|endoftext|>"), **text)
        tasks = (*_LM_EVAL, *_SUPERGLUE)
        shots = (LmEval(tasks=tasks, fewshot=0), LmEval(tasks=tasks, fewshot=3))
        model, training = gpt2_small(), scaled_signed_averaging_gpt2()
        return Trial(task=task, model=model, operator=softmax(), training=training, evaluations=shots)
    context, batch, steps = {"gpu": (256, 64, 6000), "cpu": (64, 16, 500)}[scale]
    layers, width = {"gpu": (6, 384), "cpu": (2, 64)}[scale]
    return Trial(
        task=Text(context=context, batch=batch),
        model=gpt2(layers=layers, heads=layers, width=width, max_positions=context),
        operator=softmax(),
        training=_short(steps, 1e-3).changed(precision="bfloat16" if scale == "gpu" else "float32"),
    )


def table2(scale: PaperScale) -> Grid:
    """GPT-2 on web text, softmax and SSA; gpu and cpu compare losses, since accuracies are at chance there."""
    return Grid(
        name="table2",
        base=_language(scale),
        axes=[over("operator", [softmax(), ssa()])],
        seeds=_SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_LOSS,
    )


_PARADIGMS = (
    "agreement_subject_verb_across_prepositional_phrase",
    "agreement_subject_verb_across_relative_clause",
    "agreement_subject_verb_in_question_with_aux",
    "anaphor_agreement_pronoun_gender",
    "argument_structure_dropped_argument",
    "argument_structure_swapped_arguments",
    "argument_structure_transitive",
    "binding_principle_a",
    "case_subjective_pronoun",
    "filler_gap_wh_question_subject",
    "irregular_verb",
    "quantifiers_superlative",
)


def table3(scale: PaperScale) -> Grid:
    """BabyBERTa with softmax and SSA of fixed n; gpu and cpu compare losses on Python's documentation."""
    if scale == "paper":
        words = tokenizer("babyberta", 8192, end="</s>", mask="<mask>")
        base = Trial(
            task=MaskedText(tokenizer=words, **corpus("aochildes.txt")),
            model=babyberta_8m(),
            operator=softmax(),
            training=babyberta_recipe(),
            evaluations=(zorro(*_PARADIGMS),),
        )
    else:
        layers, width, steps = {"gpu": (4, 256, 6000), "cpu": (2, 64, 500)}[scale]
        base = Trial(
            task=MaskedText(batch=32, context=128 if scale == "gpu" else 64),
            model=babyberta(layers=layers, heads=4, width=width, feedforward_width=4 * width),
            operator=softmax(),
            training=_short(steps, 1e-3),
        )
    fixed = [ssa(n, per="constant", name=f"SSA n={n:g}") for n in (1.5, 2.0)]
    return Grid(
        name="table3",
        base=base,
        axes=[over("operator", [softmax(), *fixed])],
        seeds=_SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_LOSS.changed(unit="nats per hidden token"),
    )


def table6(scale: PaperScale) -> Grid:
    """Squared error of softmax by depth and heads, two models without feed-forward; cpu leaves out 12 and 18 layers."""
    sizes = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (3, 4), (6, 4), (12, 8), (18, 8)]
    bare = [(2, 32), (12, 8)]
    if scale == "cpu":
        sizes, bare = sizes[:10], bare[:1]
    models = {_name_size(layers, heads): _model(scale, layers, heads) for layers, heads in sizes}
    models |= {
        f"{_name_size(layers, heads)}, attention only": _model(scale, layers, heads, feedforward=False)
        for layers, heads in bare
    }
    return Grid(
        name="table6",
        base=_functions(scale),
        axes=[over("model", list(models.values()), labels=list(models))],
        seeds=range(3),
        baseline={"model": "2 layers, 4 heads"},
        measure=_ERROR,
    )


def _name_size(layers: int, heads: int) -> str:
    return f"{layers} layer{'s' * (layers > 1)}, {heads} head{'s' * (heads > 1)}"


def figure4(scale: PaperScale) -> Grid:
    """Errors of softmax and SSA on "every" and "some" by length and spread, and with one value of 70."""
    points = _POINTS[scale]
    lengths = {"paper": tuple(range(10, 201, 10)), "gpu": (10, 20, 40, 80), "cpu": (10, 20)}[scale]
    spreads = _SIGMAS if scale == "cpu" else tuple(map(float, range(1, 31)))
    sequences = {"paper": 6400, "gpu": 1600, "cpu": 400}[scale]
    model = _model(scale)
    longest = {"paper": 512, "gpu": 192, "cpu": 40}[scale]
    base = _functions(scale).changed(
        task=Quantifiers(
            points=points,
            batch=32 if scale == "cpu" else 64,
            curriculum=_functions(scale).task.curriculum,
            evaluation=LengthGrid(lengths=lengths, sigma=spreads, sequences=sequences),
        ),
        model=model.changed(positions=model.positions.changed(count=longest)),
        evaluations=(LargeValue(numbers=points, sequences=128),),
        probing=Probing(probes=(AttentionMaps(),)),
    )
    return Grid(
        name="figure4",
        base=base,
        axes=[over("task.quantifier", ["every", "some"]), over("operator", [softmax(), ssa()])],
        seeds=_SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_ANSWERS.changed(point={"length": 20, "sigma": 1}),
    )


_LARGE = "models of others, prompted or fine-tuned (Llama 3.1 8B, Llama 3.3 70B)"

paper = PaperGrids(
    "003",
    [
        PaperItem("table1", table1),
        PaperItem("confirmation", confirmation, scales=("cpu",)),
        PaperItem("table2", table2),
        PaperItem("table3", table3),
        PaperItem("table4", of="table2"),
        PaperItem("table5", of="table1"),
        PaperItem("table6", table6),
        PaperItem("figure1", of="table6"),
        PaperItem("figure2", of="figure4"),
        PaperItem("figure3", of="table1"),
        PaperItem("figure4", figure4),
        PaperItem("figure5", of="figure4"),
        PaperItem("figure6", reason=_LARGE),
        PaperItem("figure7", reason=_LARGE),
        PaperItem("figure8", reason="token embeddings of a model of others, the public GPT-2"),
        PaperItem("figure9", of="table6"),
        PaperItem("figure10", reason="closed form: nothing is measured"),
        PaperItem("figure11", of="table6"),
    ],
)
