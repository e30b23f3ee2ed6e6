"""How long the trials of a resource class take, by the plan's estimate for a few of their cells."""

from collections.abc import Sequence
from dataclasses import replace

from grid import Grid
from runners.estimate import Means, estimate
from runners.slurm.classes import Group
from runners.survey import Survey, Surveyed

MOST_CELLS = 12
"""Cells of a class that are estimated: counting the work of one takes a while."""

MOST_FINISHED = 200
"""Finished trials that are gone by."""


def trial_s(found: Survey, grids: Sequence[Grid], group: Group) -> float | None:
    """Seconds of a usual trial of `group`; None where nobody knows."""
    sample = _sample(group.trials)
    known = [trial for trial in found.trials if not found.wants(trial) and trial.status == "ok"][-MOST_FINISHED:]
    resources = group.resources
    per_trial = resources.gpus / resources.slots
    means = Means(gpus_per_worker=per_trial, gpu=resources.gpu_type)
    estimated = estimate(replace(found, trials=(*known, *sample)), grids, means).trial_s
    return estimated.median / len(sample) if estimated is not None else None


def _sample(trials: Sequence[Surveyed]) -> list[Surveyed]:
    """The trials of `MOST_CELLS` cells, spread over all."""
    cells = list(dict.fromkeys((trial.grid, trial.cell) for trial in trials))
    chosen = set(cells[:: -(-len(cells) // MOST_CELLS)])
    return [trial for trial in trials if (trial.grid, trial.cell) in chosen]
