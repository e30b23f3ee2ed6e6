"""Principled Attention (paper 001): its design table as a grid. The paper has no results.

192 cells of granularity of the four numbers, and softmax.
"""

from ablate import (
    AdamW,
    Cosine,
    Curriculum,
    Grid,
    LinearFunctions,
    Measure,
    PaperGrids,
    PaperItem,
    PaperScale,
    ShiftGrid,
    Training,
    Trial,
    gpt2,
    granularities,
    icl,
    over,
    principled,
    softmax,
)
from runners.optimisers.recipes import scaled_signed_averaging_in_context

_ERROR = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}, scale="log", rope=0.1, unit="squared output units")
_SEEDS = {"paper": range(5), "gpu": range(3), "cpu": range(1)}


def _base(scale: PaperScale) -> Trial:
    """Linear functions in context: paper 001 names no task, so "paper" is the setting of paper 003."""
    if scale == "paper":
        return Trial(
            task=LinearFunctions(curriculum=Curriculum()),
            model=icl(),
            operator=principled(gate_dims="split"),
            training=scaled_signed_averaging_in_context(),
        )
    points, batch, steps, width = {"gpu": (20, 64, 1000, 64), "cpu": (11, 16, 200, 32)}[scale]
    return Trial(
        task=LinearFunctions(
            points=points,
            batch=batch,
            evaluation=ShiftGrid(sigma_x=(1.0,), sigma_f=(1.0, 3.0, 5.0), functions=50, sequences=8, points=points),
        ),
        model=gpt2(layers=2, heads=2, width=width, max_positions=64),
        operator=principled(gate_width=4, gate_dims="split"),
        training=Training(
            steps=steps, optimiser=AdamW(lr=1e-2, betas=(0.9, 0.99)), schedule=Cosine(warmup=steps // 12), clip=1.0
        ),
    )


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
        measure=_ERROR,
    )
    plain = Grid(
        name="softmax",
        base=_base(scale),
        axes=[over("operator", [softmax()])],
        seeds=_SEEDS[scale],
        baseline={"operator": "softmax"},
        measure=_ERROR,
    )
    return factorial | plain


paper = PaperGrids("001", [PaperItem("design", design)])
