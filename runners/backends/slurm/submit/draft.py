"""Drafts of submissions: the classes of trials, their numbers of workers and their scripts; nothing is written."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import final

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.disk_space import require_disk_space
from ablate.runners.attempts.manifest import encode_line, submission_id
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import Array, ResourceClass
from ablate.runners.backends.slurm.scheduler import Scheduler
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.backends.slurm.submit import workload
from ablate.runners.backends.slurm.submit.already_queued import AlreadyQueued, queued_elsewhere
from ablate.runners.backends.slurm.submit.cluster_checks import (
    choose_excluded,
    count_lost,
    require_time,
    warn_if_not_shared,
)
from ablate.runners.backends.slurm.submit.cluster_limits import Limits, arrays, limits_if_known, read_limits
from ablate.runners.backends.slurm.submit.job_arrays import Arrays, Room, require_commands
from ablate.runners.backends.slurm.submit.resource_classes import Demands, Group
from ablate.runners.output import format_count
from ablate.runners.planning.prepared_run import PreparedRun
from ablate.runners.planning.worklist import GridTrial
from ablate.runners.provenance.code_snapshot import pack, shell_lines
from ablate.runners.provenance.environment import torch_without_cuda
from ablate.store.state import State


@final
@dataclass(frozen=True)
class Draft:
    """A submission that is not written yet."""

    submission: str
    groups: tuple[Group, ...]
    classes: tuple[ResourceClass, ...]
    scripts: dict[str, str]
    """The input of sbatch for each array, in the order of classes and arrays."""
    elsewhere: AlreadyQueued
    wanted: tuple[GridTrial, ...]
    """All missing trials, including those in `elsewhere`."""
    notes: tuple[str, ...]

    @property
    def workers(self) -> int:
        return sum(each.workers for each in self.classes)

    @property
    def trials(self) -> int:
        return sum(len(group.trials) for group in self.groups)


@final
class Drafter:
    """Drafts submissions of a campaign's grids; writes nothing.

    Raises:
        SpecError: a grid is invalid, or the request is; or finished trials would leave a grid, see `run_campaign`.
        EnvironmentProblem: there is no SLURM here, or it does not answer.
    """

    def __init__(
        self, request: RunRequest, grids: Iterable[Grid], slurm: Slurm, scheduler: Scheduler, *, dry_run: bool = False
    ) -> None:
        """With `dry_run`, a machine without SLURM can draft, too."""
        if not dry_run:
            require_commands()
        self.asked = _with_environment(slurm)
        """The workers that are requested, as it is recorded."""
        self.scheduler = scheduler
        self._limits: Limits = limits_if_known() if dry_run else read_limits()
        require_disk_space(request.root)
        self._demands = Demands(self.asked, self._most_cpus)
        request = replace(request, heartbeat_s=slurm.heartbeat_s, oom=slurm.oom)
        self.prepared = PreparedRun(request, grids, self._demands.add_cell, self._demands.check)
        self.layout, self.grids = self.prepared.layout, self.prepared.grids
        self.lines: dict[str, list[bytes]] = {}
        self.worklist = self.prepared.list_trials(
            lambda grid, lines: self.lines.update({grid.name: list(map(encode_line, lines))})
        )
        self.request = self.prepared.request
        self.chosen = self.worklist.narrow_to(request.only, request.seeds)
        self._wanted = self.chosen.to_do
        self._lost_on = count_lost(self.layout, self._wanted)
        self.packed = pack(request.files) if request.files else None
        self._trial_s: dict[str, float | None] = {}
        self._exclude: str | None = None

    def _most_cpus(self, partition: str | None) -> int:
        known = [each.cpus for each in self._limits.partitions_of(partition)]
        return max(known, default=0 if self._limits.partitions else os.cpu_count() or 1)

    def draft(self) -> Draft:
        """Draft a submission and let sbatch test its scripts.

        Raises SpecError or EnvironmentProblem if SLURM would refuse it, or the campaign cannot take it.
        """
        known = bool(self._limits.partitions)
        keys = {trial.key for trial in self.worklist.trials}
        plans = {grid.name: keys for grid in self.grids}
        elsewhere = queued_elsewhere(self.layout, self._wanted, self.scheduler, plans) if known else AlreadyQueued()
        groups = self._demands.groups([each for each in self._wanted if each.key not in elsewhere.trials])
        self._require_gpus_for_budget(groups)
        remarks = self._avoid_nodes(groups)
        submission = submission_id()
        arrays = self.arrays(submission)
        sizes, notes = self._sizes(groups, arrays)
        classes, at_once = self._classes(groups, sizes)
        if not self.asked.python and any(group.resources.gpus for group in groups) and torch_without_cuda():
            notes.append(
                "torch is a build for the CPU here, so nothing would be trained on the GPUs that were asked for"
            )
        if groups and (warning := warn_if_not_shared(self.layout.root)):
            notes.append(warning)
        shares = iter(at_once)
        scripts = {
            f"{each.name} from {array.first}" if array.first else each.name: arrays.script(
                number, array, next(shares), group.resources
            )
            for number, (group, each) in enumerate(zip(groups, classes, strict=True))
            for array in each.arrays
        }
        remarks = [*self._demands.remarks, *_unused_variables(), *remarks, *self._limits.problems]
        notes = [*remarks, *notes, *elsewhere.notes]
        return Draft(submission, tuple(groups), tuple(classes), scripts, elsewhere, self._wanted, tuple(notes))

    def _require_gpus_for_budget(self, groups: Sequence[Group]) -> None:
        budget = self.request.budget
        without = [group.name for group in groups if not group.resources.gpus]
        if budget is not None and budget["unit"] == "gpuh" and without:
            raise SpecError(
                f"--budget {budget['hours']:g}gpuh counts GPUs, and the workers of {', '.join(without)} have none; say "
                f"it in hours of cores, such as --budget {budget['hours']:g}cpuh"
            )

    def _avoid_nodes(self, groups: Sequence[Group]) -> list[str]:
        """Exclude nodes that lost trials, from this submission only; it is not part of the request."""
        partitions = [each for group in groups for each in self._limits.partitions_of(group.resources.partition)]
        nodes, remarks = choose_excluded(self._lost_on, partitions)
        self._exclude = ",".join(filter(None, (self.asked.exclude, *nodes))) or None
        return remarks

    def _sizes(self, groups: Sequence[Group], arrays: Arrays) -> tuple[list[int], list[str]]:
        """Return the workers of every class, and notes if they differ from the request."""
        sizes = workload.workers(workload.loads(groups, self.asked, self._trial_seconds), self.asked.workers)
        notes = []
        requested, total = self.asked.workers, sum(sizes)
        if requested is not None and groups and total != requested:
            why = "there are not trials for more" if total < requested else "each class of trials needs one at least"
            notes.append(f"{format_count(total, 'worker')} and not {requested}: {why}")
        room = self._room(groups, arrays, total)
        if room is not None and groups and room.tasks < min(total, self._limits.array_size):
            if room.tasks < len(groups):
                raise EnvironmentProblem(
                    f"at least {format_count(len(groups), 'worker')} must be queued, one for each class of trials, and "
                    f"SLURM takes {room.tasks} now ({room.because}); wait until some jobs have ended, cancel some, or "
                    "name another --account or --qos"
                )
            sizes = workload.split(room.tasks, sizes, sizes)
            notes.append(
                f"{format_count(room.tasks, 'worker')} and not {total}, each of which trains more trials: the queue "
                f"takes no more ({room.because})"
            )
        return sizes, notes

    def _room(self, groups: Sequence[Group], arrays: Arrays, total: int) -> Room | None:
        """Ask sbatch how many workers it takes of each class, up to one array of all; return the least.

        The request is checked also if no trial is left for it. None: there is no cluster here.
        """
        if not self._limits.partitions:
            return None
        planned = [trial for trial in self.worklist.trials if trial.state != State.FAILED]
        tasks, rooms = min(max(total, 1), self._limits.array_size), []
        for number, group in enumerate(groups or self._demands.groups(self._wanted or planned)):
            require_time(group.resources, self._limits)
            rooms.append(arrays.room(arrays.script(number, Array(0, tasks), tasks, group.resources), tasks))
        return min(rooms, key=lambda each: each.tasks, default=None)

    def _trial_seconds(self, group: Group) -> float | None:
        if group.name not in self._trial_s:
            self._trial_s[group.name] = workload.trial_s(self.worklist, self.grids, group)
        return self._trial_s[group.name]

    def _classes(self, groups: Sequence[Group], sizes: Sequence[int]) -> tuple[list[ResourceClass], list[int]]:
        """Return the classes with their arrays, and how many workers of each array may run at once."""
        classes = []
        begin = 0
        for group, size in zip(groups, sizes, strict=True):
            tasks = arrays(size, self._limits)
            firsts = [0, *accumulate(tasks)]
            parts = tuple(Array(first, count) for first, count in zip(firsts, tasks, strict=False))
            rows = (begin, begin + len(group.trials))
            classes.append(ResourceClass(group.name, rows, asdict(group.resources), size, parts))
            begin = rows[1]
        counts = [array.tasks for each in classes for array in each.arrays]
        return classes, workload.at_once(counts, self.asked.max_parallel)

    def arrays(self, submission: str) -> Arrays:
        tree: list[str] = []
        if self.packed is not None:
            snapshot = self.packed.snapshot
            tree = shell_lines(self.layout.snapshot_tar(snapshot.tar), snapshot)
        slurm = self.asked.changed(exclude=self._exclude)
        return Arrays(self.layout, submission, slurm, tree, single=self._limits.array_size <= 1)


_FROM_ENVIRONMENT = ("partition", "account", "qos", "constraint")


def _unused_variables() -> list[str]:
    """Return a note if sbatch's own variables are set that fill no field: scripts are submitted without them."""
    used = {f"SBATCH_{name.upper()}" for name in _FROM_ENVIRONMENT}
    names = sorted(name for name in os.environ if name.startswith("SBATCH_") and name not in used)
    return [f"{', '.join(names)} of the environment is not used; set it in Slurm(...)"] if names else []


def _with_environment(slurm: Slurm) -> Slurm:
    """Fill open fields from sbatch's own variables, which would otherwise override the script."""
    names = [name for name in _FROM_ENVIRONMENT if getattr(slurm, name) is None]
    values = {name: os.environ.get(f"SBATCH_{name.upper()}") for name in names}
    return slurm.changed(**{name: value for name, value in values.items() if value})
