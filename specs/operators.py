"""Every named operator against softmax, on linear functions in context at a size that one machine trains.

230 trials; `ablate plan` says how long they take here. A first look, and a check that an operator trains at all: with
five seeds most differences stay undecided. `prefix_lm` is left out: what a query sees of the prefix, the loss asks for.
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
    catalogue,
    gpt2,
    over,
    softmax,
)

named = [each.make() for each in catalogue().values()]

grid = Grid(
    name="operators",
    base=Trial(
        task=LinearFunctions(
            points=11,
            batch=32,
            evaluation=ShiftGrid(sigma_x=(1,), sigma_f=(1, 3, 5), functions=50, sequences=8, points=11),
        ),
        model=gpt2(layers=2, heads=4, width=64, max_positions=32),
        operator=softmax(),
        training=Training(
            steps=1200, optimiser=AdamW(lr=3e-3, betas=(0.9, 0.99)), schedule=Cosine(warmup=100), clip=1.0
        ),
    ),
    axes=[over("operator", [operator for operator in named if "causality" not in operator.breaks])],
    seeds=range(5),
    baseline={"operator": "softmax"},
    measure=Measure(name="mse", point={"sigma_x": 1, "sigma_f": 1}, scale="log", rope=0.1, unit="squared output units"),
)
