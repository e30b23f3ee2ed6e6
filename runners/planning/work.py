"""The work of trials of unknown duration: tokens, FLOPs, and the hours that a stated rate of one GPU makes of them."""

from collections import Counter
from collections.abc import Sequence
from operator import mul
from typing import Final, NamedTuple

from ablate.grid import Grid
from ablate.grid.durations import format_hours
from ablate.runners.planning.duration import HOUR_S, MOST_COUNTED, count_flops, describe_problem, model_key, step_count
from ablate.runners.planning.worklist import GridTrial, Worklist

PEAK: Final = 989e12
"""FLOP/s of an H100 in bfloat16, dense."""
UTILISATION: Final = 0.4


class Work(NamedTuple):
    """Work of training, without evaluations and probes."""

    flops: float
    tokens: float | None
    """None: a trial does not say how many."""

    @property
    def gpu_hours(self) -> float:
        """Hours of one H100 at `UTILISATION`."""
        return self.flops / (UTILISATION * PEAK * HOUR_S)

    def __str__(self) -> str:
        """Name tokens, FLOPs and hours, and the rate that the hours suppose."""
        tokens = "" if self.tokens is None else f"{self.tokens:.3g} tokens, "
        rate = f"{100 * UTILISATION:.0f} % of {PEAK / 1e12:.0f} TFLOP/s (H100, bfloat16, dense)"
        hours = format_hours(self.gpu_hours, "GPU-h")
        return f"{tokens}{self.flops:.3g} FLOP: {hours} at {rate}; small models reach far less"


def count_work(trials: Sequence[GridTrial], grids: Sequence[Grid]) -> Work | str | None:
    """Sum the work of `trials` of `grids`; None: an experiment does not count it; a text: why it could not be counted.

    If they have more than `MOST_COUNTED` models, so many are counted; the others take their mean of a step.
    """
    number = Counter((trial.grid, trial.cell) for trial in trials)
    if not number:
        return None
    planned = {(grid.name, each.cell): each for grid in grids for each in grid.cells()}
    models = {cell: model_key(planned[cell].trial) for cell in number}
    several = [*dict.fromkeys(models.values())]
    chosen = set(several[:: -(-len(several) // MOST_COUNTED)])
    flops: dict[tuple[str, str], float] = {}
    for cell in number:
        if models[cell] in chosen:
            try:
                counted = count_flops(planned[cell].trial)
            except Exception as error:  # noqa: BLE001
                return f"{planned[cell].operator}: {describe_problem(error)}"
            if counted is None:
                return None
            flops[cell] = counted
    steps = {cell: step_count(planned[cell].trial) for cell in number}
    of_step = sum(flops.values()) / sum(steps[cell] for cell in flops)
    tokens = [getattr(planned[cell].trial, "tokens", lambda: None)() for cell in number]
    return Work(
        sum(count * flops.get(cell, of_step * steps[cell]) for cell, count in number.items()),
        None if None in tokens else float(sum(map(mul, number.values(), tokens))),
    )


def count_seeds(worklist: Worklist, grids: Sequence[Grid]) -> dict[str, Work | str | None]:
    """Count the work of each grid of one seed, with its finished trials."""
    single = [grid.name for grid in grids if len(tuple(grid.seeds)) == 1]
    return {name: count_work([each for each in worklist.trials if each.grid == name], grids) for name in single}
