"""Principled Attention (paper 001): its design table as a grid. The paper has no results.

192 cells of granularity of the four numbers, and softmax.
"""

from ablate import (
    AdamW,
    Cosine,
    Curriculum,
    Grammar,
    Grid,
    Ground,
    GroundValue,
    LinearFunctions,
    LogCount,
    Measure,
    Number,
    Operator,
    PaperGrids,
    PaperItem,
    PaperScale,
    Suppress,
    Training,
    Trial,
    gpt2,
    granularities,
    icl,
    over,
    principled,
    softmax,
)
from ablate.training.optimisers.recipes import scaled_signed_averaging_in_context

_ERROR = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}, scale="log", rope=0.1, unit="squared output units")
_LOSS = Measure(name="validation_loss", scale="linear", rope=0.03, unit="nats per token")
_SEEDS = {"paper": range(5), "gpu": range(5), "cpu": range(2)}


def _base(scale: PaperScale) -> Trial:
    """Linear functions as in paper 003 for "paper", since paper 001 names no task; else grammar.

    Grammar is the cheapest task on which a component made a difference. Numbers start at 0 there: a short run cannot
    leave the neutral start.
    """
    if scale == "paper":
        return Trial(
            task=LinearFunctions(curriculum=Curriculum()),
            model=icl(),
            operator=principled(gate_dims="split"),
            training=scaled_signed_averaging_in_context(),
        )
    batch, steps = {"gpu": (32, 600), "cpu": (16, 240)}[scale]
    zero = Number(init=0.0)
    return Trial(
        task=Grammar(
            nouns=16, verbs=8, names=16, prepositions=4, topics=2, context=32, batch=batch,
            validation_windows=256, agreement_pairs=64,
        ),
        model=gpt2(layers=2, heads=2, width=32, max_positions=32),
        operator=Operator(
            gate=Suppress(width=4, dims="split", strength=zero),
            normaliser=Ground(threshold=zero),
            margin=LogCount(amplification=zero),
            readout=GroundValue(),
        ),
        training=Training(steps=steps, optimiser=AdamW(lr=5e-3), schedule=Cosine(warmup=steps // 10), clip=1.0),
    )  # fmt: skip


def design(scale: PaperScale) -> Grid:
    """Granularity of strength, threshold, amplification and ground value, and softmax."""
    factorial = Grid(
        name="any",
        base=_base(scale),
        axes=[
            over("operator.gate.strength.per", granularities),
            over("operator.normaliser.threshold.per", granularities),
            over("operator.margin.amplification.per", granularities),
            over("operator.readout.ground_value.per", granularities[:3]),
        ],
        seeds=_SEEDS[scale],
        measure=_ERROR if scale == "paper" else _LOSS,
    )
    plain = Grid(
        name="softmax",
        base=_base(scale),
        axes=[over("operator", [softmax()])],
        seeds=_SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_ERROR if scale == "paper" else _LOSS,
    )
    return factorial | plain


paper = PaperGrids("001", [PaperItem("design", design)])
