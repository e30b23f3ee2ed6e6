"""Ten thousand trials: four operators by fifty learning rates by fifty seeds."""

from grid import Grid, over
from runners import LinearFunctions, Training, Trial
from variants import gpt2, integral, principled, softmax, ssa

grid = Grid(
    name="ten_thousand",
    base=Trial(
        task=LinearFunctions(points=11, batch=32),
        model=gpt2(layers=2, heads=2, width=32, max_positions=128),
        operator=softmax(),
        training=Training(steps=1200),
    ),
    axes=[
        over("operator", [softmax(), ssa(), integral(signals=4), principled()]),
        over("training.optimiser.lr", [rate / 10_000 for rate in range(1, 51)]),
    ],
    seeds=range(50),
)
