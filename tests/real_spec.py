"""The text of a spec file whose trials are real training that takes milliseconds."""

_TEXT = """\
from ablate.grid import Grid, over
from ablate import Execution, LinearFunctions, ShiftGrid, Slurm, Training, Trial
from ablate.variants import gpt2, softmax, ssa
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

STUMBLING = """
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor

from ablate.variants.stages.families import LogScore


class Stumbling(LogScore):
    \"\"\"The exponential, unless a file is in its way.\"\"\"

    source: ClassVar[str] = "none"
    kind: Literal["stumbling"] = "stumbling"

    def log_score(self, a: Tensor) -> Tensor:
        if (Path(__file__).parent / "stumble").exists():
            raise RuntimeError("something was in its way")
        return a

    def oracle(self, a: float) -> float:
        import math

        return math.exp(a)
"""
"""A score that fails while the file `stumble` is beside the spec; write it before the grid."""


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
