"""The headline grid of Principled Attention (paper 001, section 4), which its own results section leaves empty.

beta, gamma and alpha at constant / per layer / per head / per query, v0 fixed / per layer / per head: 4 x 4 x 4 x 3 =
192 cells, and softmax. On linear functions in context, at a size one machine can train; `full` is that of paper 003.
"""

from ablate import (
    AdamW,
    Cosine,
    Curriculum,
    Grid,
    LinearFunctions,
    Measure,
    ShiftGrid,
    Training,
    Trial,
    gpt2,
    granularities,
    over,
    principled,
    softmax,
)

MSE = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}, scale="log", rope=0.1, unit="squared output units")


def headline(name: str, base: Trial) -> Grid:
    """192 cells of granularity and the softmax they are compared with."""
    factorial = Grid(
        name=name,
        base=base,
        axes=[
            over("operator.gate.strength.per", granularities),
            over("operator.normaliser.threshold.per", granularities),
            over("operator.margin.amplification.per", granularities),
            over("operator.readout.ground_value.per", granularities[:3]),
        ],
        seeds=range(5),
        measure=MSE,
    )
    baseline = Grid(
        name="softmax",
        base=base,
        axes=[over("operator", [softmax()])],
        seeds=range(5),
        baseline={"operator": "softmax"},
        measure=MSE,
    )
    return (factorial | baseline).named(name)


small = headline(
    "principled",
    Trial(
        task=LinearFunctions(
            points=11,
            batch=32,
            evaluation=ShiftGrid(sigma_x=(1, 2), sigma_f=tuple(range(1, 11)), functions=50, sequences=8, points=11),
        ),
        model=gpt2(layers=2, heads=2, width=32, max_positions=32),
        operator=principled(gate_width=4, gate_dims="split"),
        training=Training(
            steps=1200, optimiser=AdamW(lr=1e-2, betas=(0.9, 0.99)), schedule=Cosine(warmup=100), clip=1.0
        ),
    ),
)

full = headline(
    "principled-full",
    Trial(
        task=LinearFunctions(points=40, batch=64, curriculum=Curriculum()),
        model=gpt2(layers=12, heads=8, width=256),
        operator=principled(gate_width=16, gate_dims="split"),
        training=Training(steps=500_000, optimiser=AdamW(lr=1e-4)),
    ),
)
