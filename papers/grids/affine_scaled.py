"""Affine-Scaled Attention (paper 000): its tables and figures as grids.

Affine-Scaled is in every grid by both readings of N: the number of visible keys, and the length of the context. At the
scale paper, students learn the predictions of the paper's teachers. At gpu and cpu they learn text without a teacher.
"""

from typing import Literal

from ablate import (
    AdamW,
    AttentionEntropy,
    AttentionMaps,
    Backbone,
    Distillation,
    FirstToken,
    GradientNorms,
    Grid,
    LearnedNumbers,
    LmEval,
    Measure,
    Operator,
    PaperGrids,
    PaperItem,
    PaperScale,
    Probing,
    QKLogits,
    Text,
    Training,
    Trial,
    WeightSums,
    affine_gated,
    affine_scaled,
    gated_elements,
    learned_sink,
    llama2,
    llama3_1b,
    llama3_3b,
    off_by_one,
    over,
    qwen1_5_0b5,
    softmax,
    zipped,
)
from ablate.papers.grids.corpora import corpus, teacher, tokenizer
from ablate.papers.grids.sizes import name_size
from ablate.training.optimisers.recipes import affine_scaled as recipe, scaled

_LOSS = Measure(name="validation_loss", scale="linear", rope=0.02, unit="nats per token")
_SEEDS = {"paper": range(1), "gpu": range(3), "cpu": range(5)}
_PROBES = (
    *(FirstToken(), WeightSums(), AttentionEntropy(), QKLogits(), GradientNorms(), LearnedNumbers(), AttentionMaps()),
)
_TASKS = ("winogrande", "piqa", "hellaswag", "arc_challenge", "arc_easy", "boolq")
_SIZES = {"paper": ("0.5B", "1B", "3B"), "gpu": ("0.5B", "1B"), "cpu": ("0.5B", "1B")}
"""Names of the paper's sizes; gpu and cpu have small models in the place of these."""


def _models(scale: PaperScale) -> dict[str, Backbone]:
    if scale == "paper":
        return {"0.5B": qwen1_5_0b5(), "1B": llama3_1b(), "3B": llama3_3b()}
    layers, width = {"gpu": (4, 256), "cpu": (2, 32)}[scale]
    sizes = {"0.5B": (layers, width), "1B": (2 * layers, 2 * width)}
    return {
        name: llama2(layers=depth, heads=4, width=wide, feedforward_width=2 * wide)
        for name, (depth, wide) in sizes.items()
    }


def _tasks(scale: PaperScale) -> dict[str, Text | Distillation]:
    """The task of each size: its teacher's tokens and predictions."""
    if scale != "paper":
        context, batch = {"gpu": (256, 64), "cpu": (64, 16)}[scale]
        return dict.fromkeys(_SIZES[scale], Text(context=context, batch=batch))
    teachers = {
        "0.5B": ("qwen1.5-1.8b", 151_936, 32_768),
        "1B": ("llama-3.2-3b", 128_256, 131_072),
        "3B": ("llama-3.1-8b", 128_256, 131_072),
    }
    ends = {"0.5B": "<|endoftext|>", "1B": "<|end_of_text|>", "3B": "<|end_of_text|>"}
    return {
        size: Distillation(
            task=Text(
                context=2048, batch=1024, tokenizer=tokenizer(name, rows, end=ends[size]), **corpus("fineweb-edu")
            ),
            teacher=teacher(name, rows, positions),
        )
        for size, (name, rows, positions) in teachers.items()
    }


def _base(scale: PaperScale, size: str) -> Trial:
    training = Training(
        steps={"paper": 9000, "gpu": 2000, "cpu": 500}[scale],
        optimiser=AdamW(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=scaled(recipe(), 2000).schedule,
        clip=1.0,
        precision="float32" if scale == "cpu" else "bfloat16",
    )
    return Trial(
        task=_tasks(scale)[size],
        model=_models(scale)[size],
        operator=softmax(),
        training=recipe() if scale == "paper" else training.changed(evaluate_every=training.steps // 5),
        probing=Probing(probes=_PROBES, sequences=10, length=1024 if scale == "paper" else 64),
        evaluations=(LmEval(tasks=_TASKS, fewshot=0),) if scale == "paper" else (),
    )


def _by_size(scale: PaperScale, sizes: tuple[str, ...], operators: list[Operator]) -> Grid:
    models, tasks = _models(scale), _tasks(scale)
    labels = [size for size in sizes if size in models]
    named = [name_size(each, _base(scale, each), scale) for each in labels]
    size = over("model", [models[each] for each in labels], labels=named)
    own = over("task", [tasks[each] for each in labels], labels=[f"text of {each}" for each in labels])
    return Grid(
        name="any",
        base=_base(scale, labels[0]),
        axes=[zipped(size, own) if scale == "paper" else size, over("operator", operators)],
        seeds=_SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_LOSS,
    )


_Link = Literal["clipped", "unit"]


def _both(link: _Link = "clipped") -> list[Operator]:
    return [affine_scaled(link), affine_scaled(link, n="context", name="Affine-Scaled, N of context")]


def _both_gated(link: _Link = "clipped") -> list[Operator]:
    return [affine_gated(link), affine_gated(link, n="context", name="Affine-Scaled + Gated, N of context")]


def _without_bias(gated: Operator) -> Operator:
    """A gate without a bias, which gives the paper's numbers of parameters."""
    gate = gated.output_gate
    return gated.changed(output_gate=gate.changed(opening=gate.opening.changed(bias=False)))


def table1(scale: PaperScale) -> Grid:
    """Softmax, a learned sink, one fixed at 0 (off by one) and Affine-Scaled by size of the model."""
    return _by_size(scale, ("0.5B", "1B", "3B"), [softmax(), learned_sink(), off_by_one(), *_both()])


def table2(scale: PaperScale) -> Grid:
    """Gated attention with and without Affine-Scaled by size of the model."""
    gated = [gated_elements(), *_both_gated()]
    return _by_size(scale, ("1B", "3B"), [softmax(), *(map(_without_bias, gated) if scale == "paper" else gated)])


def table3(scale: PaperScale) -> Grid:
    """Sigmoid or linear clipping of the scale, with and without a gate."""
    operators = [softmax()]
    links: dict[_Link, str] = {"unit": "sigmoid", "clipped": "clipped"}
    for link, words in links.items():
        operators += [each.changed(name=f"{each.name}, {words}") for each in (*_both(link), *_both_gated(link))]
    if scale == "paper":
        operators = [each if each.output_gate.label == "none" else _without_bias(each) for each in operators]
    return _by_size(scale, ("1B",), operators)


paper = PaperGrids(
    "000",
    [
        PaperItem("table1", table1),
        PaperItem("table2", table2),
        PaperItem("table3", table3),
        PaperItem("table4", of="table1"),
        PaperItem("table5", of="table1"),
        PaperItem("figure1", reason="a schematic of three mechanisms"),
        *(PaperItem(f"figure{number}", of="table1") for number in range(2, 11)),
        PaperItem("figure11", reason="closed form: nothing is measured"),
    ],
)
