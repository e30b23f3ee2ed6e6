"""The grid that release 0.1.0 trained into `campaign`."""

from grid import Grid, Measure, over
from runners import LinearFunctions, Probing, ShiftGrid, Training, Trial
from variants import gpt2, softmax, ssa

grid = Grid(
    name="released",
    base=Trial(
        task=LinearFunctions(
            points=5, batch=8, evaluation=ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=4, sequences=2, points=5)
        ),
        model=gpt2(layers=1, heads=2, width=8, max_positions=16),
        operator=softmax(),
        training=Training(steps=3),
        probing=Probing(probes=()),
    ),
    axes=[over("operator", [softmax(), ssa()])],
    seeds=range(2),
    baseline={"operator": "softmax"},
    measure=Measure(name="mse", point={"sigma_x": 1, "sigma_f": 1}, scale="log", rope=0.1),
)
