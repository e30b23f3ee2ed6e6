"""The text of a spec file whose trials are real training that takes milliseconds."""

_TEXT = """\
from grid import Grid, over
from runners import Execution, LinearFunctions, ShiftGrid, Slurm, Training, Trial
from variants import gpt2, softmax, ssa
{before}
judged = ShiftGrid(sigma_x=(1,), sigma_f=(1, 3), functions=4, sequences=2, points=5)
grid = Grid(
    name={name!r},
    base=Trial(
        task=LinearFunctions(points=5, batch=4, evaluation=judged),
        model=gpt2(layers=1, heads=2, width=8, max_positions=16),
        operator=softmax(),
        training=Training({training}),
        execution=Execution(device="cpu", {execution}),
    ),
    axes=[over("operator", [{operators}])],
    seeds=range({seeds}),
)
{after}
"""


def real_spec(
    name: str,
    *,
    training: str,
    execution: str = "",
    operators: str = "softmax(), ssa()",
    seeds: int = 3,
    before: str = "",
    after: str = "",
) -> str:
    """A grid of `operators` by `seeds`; `training` and `execution` are arguments, the others statements around it."""
    return _TEXT.format(
        name=name, training=training, execution=execution, operators=operators, seeds=seeds, before=before, after=after
    )
