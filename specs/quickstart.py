"""Four operators, one of them at two granularities, learn linear functions in context: two cores, under two minutes.

The task of paper 003 (Scaled Signed Averaging) scaled down: a model sees x1, f(x1), x2, f(x2), ... and predicts f(x).
Trained on x, a, b ~ N(0, 1); judged where the functions are three times steeper than in training.
"""

from ablate import (
    AdamW,
    Cosine,
    Grid,
    LinearFunctions,
    Measure,
    ShiftGrid,
    Training,
    Trial,
    gpt2,
    has,
    integral,
    over,
    principled,
    softmax,
    ssa,
    zipped,
)

granularity = ["constant", "query"]
words = ["constant", "per query"]

grid = Grid(
    name="quickstart",
    base=Trial(
        task=LinearFunctions(
            points=11,
            batch=32,
            evaluation=ShiftGrid(sigma_x=(1, 2), sigma_f=tuple(range(1, 11)), functions=50, sequences=8, points=11),
        ),
        model=gpt2(layers=2, heads=2, width=32, max_positions=32),
        operator=softmax(),
        training=Training(
            steps=1200, optimiser=AdamW(lr=1e-2, betas=(0.9, 0.99)), schedule=Cosine(warmup=100), clip=1.0
        ),
    ),
    axes=[
        over("operator", [softmax(), ssa(), integral(signals=4), principled(gate_width=4, gate_dims="split")]),
        zipped(
            over("operator.margin.amplification.per", granularity, name="granularity", labels=words),
            over("operator.gate.strength.per", granularity, labels=words),
            over("operator.normaliser.threshold.per", granularity, labels=words),
            when=has("operator.gate.strength"),
        ),
    ],
    seeds=range(4),
    baseline={"operator": "softmax"},
    measure=Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}, scale="log", rope=0.1, unit="squared output units"),
)
