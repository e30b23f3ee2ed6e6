"""The work of resource classes: how long their trials take, and how many workers and parallel tasks they get."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from ablate.grid import Grid
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.backends.slurm.submit.resource_classes import Demands, Group
from ablate.runners.planning.duration import PlannedWorkers, estimate
from ablate.runners.planning.worklist import GridTrial, Worklist
from ablate.store.state import State

MOST_CELLS = 12
"""Cells of a class that are estimated: counting the work of one takes a while."""

MOST_FINISHED = 200

USUAL_TRIALS = 5
"""Trials per worker slot if their duration is unknown."""

FILL = 0.5
"""Share of its time limit that a worker gets work for."""


class Load(NamedTuple):
    """The work of one class."""

    trials: int
    slots: int
    """Trials side by side in one worker."""
    limit_s: float
    seconds: float | None
    """Duration of all trials, one after the other; None: unknown."""

    @property
    def most(self) -> int:
        """Most workers that all have a trial."""
        return max(1, ceil(self.trials / self.slots))

    @property
    def wanted(self) -> int:
        """Workers that fill half of their time limit."""
        if self.seconds is None:
            return min(self.most, ceil(self.trials / self.slots / USUAL_TRIALS))
        return max(1, min(self.most, ceil(self.seconds / self.slots / (FILL * self.limit_s))))


def workers(loads: Sequence[Load], asked: int | None) -> list[int]:
    """Return the workers of each class: `asked` in total, shared by work; None: as many as the work fills.

    Each class has at least one worker, and no worker without a trial.
    """
    if asked is None:
        return [load.wanted for load in loads]
    known = all(load.seconds for load in loads)
    work = [(load.seconds if known and load.seconds else float(load.trials)) / load.slots for load in loads]
    return split(asked, work, [load.most for load in loads])


def split(total: int, weights: Sequence[float], most: Sequence[int]) -> list[int]:
    """Split `total` in the ratio of `weights`: at least 1 each, at most `most`."""
    parts = [1] * len(weights)
    for _ in range(max(0, min(total, sum(most)) - len(weights))):
        growing = [index for index in range(len(parts)) if parts[index] < most[index]]
        parts[max(growing, key=lambda index: weights[index] / parts[index])] += 1
    return parts


def at_once(sizes: Sequence[int], limit: int | None) -> list[int]:
    """Return how many tasks of each array may run at the same time; at least one each."""
    return list(sizes) if limit is None else split(limit, sizes, sizes)


def trial_s(worklist: Worklist, grids: Sequence[Grid], group: Group) -> float | None:
    """Estimate the seconds of a usual trial of `group`; None: unknown."""
    cells = list(dict.fromkeys((trial.grid, trial.cell) for trial in group.trials))
    chosen = set(cells[:: -(-len(cells) // MOST_CELLS)])  # spread over all
    sample = [trial for trial in group.trials if (trial.grid, trial.cell) in chosen]
    finished = [trial for trial in worklist.trials if not worklist.wants(trial) and trial.state == State.DONE]
    known = finished[-MOST_FINISHED:]
    estimated = estimate(replace(worklist, trials=(*known, *sample)), grids, lambda _: _pool(group, 1))
    return None if estimated.trial_s is None else estimated.trial_s / (len(sample) - estimated.unknown)


def loads(groups: Sequence[Group], slurm: Slurm, seconds: Callable[[Group], float | None]) -> list[Load]:
    """Return the work of each group; `seconds` estimates a usual trial of a group.

    It is not called if all the workers that `slurm` names are for one group.
    """
    is_shared = slurm.workers is None or len(groups) > 1
    work = []
    for group in groups:
        each, count = seconds(group) if is_shared else None, len(group.trials)
        limit_s = float(group.resources.time * 60 - slurm.signal_s)
        work.append(Load(count, group.resources.slots, limit_s, each and each * count))
    return work


def _pool(group: Group, workers: int) -> PlannedWorkers:
    resources = group.resources
    return PlannedWorkers(workers, resources.slots, resources.gpus * resources.nodes / resources.slots, group.name)


def pools(groups: Sequence[Group], workers: Sequence[int], slurm: Slurm) -> Callable[[GridTrial], PlannedWorkers]:
    """Return a function from a trial to its workers, for groups with so many workers; by default the first group."""
    counts = at_once(workers, slurm.max_parallel)
    made = [_pool(group, count) for group, count in zip(groups, counts, strict=True)]
    of = {trial.key: pool for group, pool in zip(groups, made, strict=True) for trial in group.trials}
    other = made[0] if made else PlannedWorkers(1)
    return lambda trial: of.get(trial.key, other)


def plan_allocation(
    worklist: Worklist, grids: Sequence[Grid], demands: Demands, slurm: Slurm
) -> Callable[[GridTrial], PlannedWorkers]:
    """Return a function from a trial to the workers that `slurm` would give it, without asking a cluster.

    Raises SpecError if the request has no meaning for these trials.
    """
    demands.check()
    groups = demands.groups(worklist.to_do)
    work = loads(groups, slurm, lambda group: trial_s(worklist, grids, group))
    return pools(groups, workers(work, slurm.workers), slurm)
