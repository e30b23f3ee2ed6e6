"""Does SSA beat softmax out of distribution? Paper 003's experiment (table 1, figure 3), small: an hour, two cores.

Both learn linear functions in context, with the same batches per seed. Each is evaluated on inputs and functions
that are spread up to ten times as wide as in training. The paper's model is six times as deep and four times as wide,
and was trained a hundred times as long; what came out here is in docs/results.md.
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
    over,
    softmax,
    ssa,
)

grid = Grid(
    name="out_of_distribution",
    base=Trial(
        task=LinearFunctions(
            points=20,
            batch=64,
            curriculum=Curriculum(start=6, every=500, increment=2),
            evaluation=ShiftGrid(sigma_x=(1, 3), sigma_f=(1, 2, 3, 5, 7, 10), functions=100, sequences=16, points=20),
        ),
        model=gpt2(layers=2, heads=4, width=64, max_positions=40),
        operator=softmax(),
        training=Training(
            steps=5000, optimiser=AdamW(lr=1e-3), schedule=Cosine(warmup=200), clip=1.0, evaluate_every=1000
        ),
    ),
    axes=[over("operator", [softmax(), ssa()])],
    seeds=range(6),
    baseline={"operator": "softmax"},
    measure=Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}, scale="log", rope=0.1, unit="squared output units"),
)
