"""A submission before anything of it is written: which trials in which classes, how many workers, what scripts."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, final

from grid import Grid
from grid.errors import EnvironmentProblem, SpecError
from runners.attempts.disk_space import require_disk_space
from runners.attempts.manifest import KeptLines, submission_id
from runners.attempts.submission_record import Array, ResourceClass
from runners.attempts.worker import WorkerEntry
from runners.output import counted
from runners.planning.budget import Budget
from runners.planning.grid_cells import walk
from runners.planning.survey import Surveyed, survey
from runners.provenance.environment import torch_without_cuda
from runners.provenance.snapshot import pack
from runners.provenance.snapshot_extract import shell_lines
from runners.slurm.scheduler import Scheduler
from runners.slurm.spec import Slurm
from runners.slurm.submit import worker_allocation
from runners.slurm.submit.already_queued import AlreadyQueued, queued_elsewhere
from runners.slurm.submit.cluster_checks import partitions_of, require_allowed
from runners.slurm.submit.cluster_limits import Limits, Room, arrays, read_limits
from runners.slurm.submit.excluded_nodes import excluded_nodes, faults
from runners.slurm.submit.job_arrays import Arrays, ArrayTasks, require_commands
from runners.slurm.submit.resource_classes import Demands, Group
from runners.slurm.submit.shared_disk import unshared
from runners.slurm.submit.workload import loads, trial_s
from store.files.layout import Layout


@final
@dataclass(frozen=True)
class SubmitOptions:
    """How to submit; none of it changes a measured number."""

    retry: bool = False
    """Queue trials again that failed before."""
    again: bool = False
    """Queue trials again that other code finished."""
    only: frozenset[str] | None = None
    """Keys of the trials to queue, of those that are to be trained; None: all."""
    files: tuple[Path, ...] = ()
    """The spec files the grids came from, loaded before."""
    entry: WorkerEntry = field(default_factory=WorkerEntry)
    budget: Budget | None = None
    flags: frozenset[str] = frozenset()
    """Fields of the request that the command line gave; where `Needs` are more specific, that is told."""


class Script(NamedTuple):
    """What sbatch is given for one array."""

    name: str
    text: str


@final
@dataclass(frozen=True)
class Draft:
    """A submission before anything of it is written."""

    submission: str
    groups: tuple[Group, ...]
    classes: tuple[ResourceClass, ...]
    scripts: tuple[Script, ...]
    """One per array, in the order of classes and arrays."""
    elsewhere: AlreadyQueued
    wanted: tuple[Surveyed, ...]
    """All trials that are to be trained, those queued elsewhere among them."""
    notes: tuple[str, ...]

    @property
    def workers(self) -> int:
        """Of all classes."""
        return sum(found.workers for found in self.classes)

    @property
    def trials(self) -> int:
        """That this submission is for."""
        return sum(len(group.trials) for group in self.groups)


@final
class Drafter:
    """A campaign's grids and a request, looked at; nothing is written.

    Raises:
        SpecError: a grid is invalid, or the request has no meaning here: an unknown partition, account, GPU.
        EnvironmentProblem: there is no SLURM here, or it does not answer.
    """

    def __init__(
        self, root: Path | str, grids: Sequence[Grid], slurm: Slurm, scheduler: Scheduler, options: SubmitOptions
    ) -> None:
        require_commands()
        self.layout = Layout(Path(root).resolve())
        self.asked = _with_environment(slurm)
        """What is asked of the cluster, and recorded."""
        self.grids = list(grids)
        self.options = options
        self.scheduler = scheduler
        self._limits: Limits = read_limits()
        self._demands = Demands(self.asked, self._most_cpus, options.flags)
        cells = walk(self.grids, self._demands.look)
        self._remarks = self._demands.check()
        self.lines = KeptLines()
        self.survey = survey(self.layout, self.grids, cells, retry=options.retry, again=options.again, kept=self.lines)
        only = options.only
        self._wanted = tuple(trial for trial in self.survey.to_do if only is None or trial.key in only)
        self._faults = faults(self.layout, self._wanted, self.survey.trials)
        self.packed = pack(options.files) if options.files else None
        self._trial_s: dict[str, float | None] = {}
        self._exclude: str | None = None
        require_disk_space(self.layout.root)

    def _most_cpus(self, partition: str | None) -> int:
        return max(place.cpus for place in partitions_of(partition, self._limits))

    def draft(self) -> Draft:
        """What would be queued now.

        Raises:
            SpecError, EnvironmentProblem: SLURM would refuse it, or the campaign cannot take it.
        """
        found = self.drafted()
        tester = self.arrays(found.submission)
        for script in {script.name.partition(" from ")[0]: script for script in reversed(found.scripts)}.values():
            tester.test(script.text)
        return found

    def drafted(self) -> Draft:
        """The same, without asking sbatch whether it would take the scripts."""
        elsewhere = queued_elsewhere(self.layout, self._wanted, self.scheduler)
        left = [trial for trial in self._wanted if trial.key not in elsewhere.trials]
        groups = self._demands.groups(self.layout, left)
        require_allowed(self.asked, [group.resources for group in groups or self._nothing_left()], self._limits)
        self._require_countable(groups)
        remarks = [*dict.fromkeys(remark for group in groups for remark in group.remarks), *self._avoid(groups)]
        submission = submission_id()
        sizes, notes = self._sizes(groups)
        classes, at_once = self._classes(groups, sizes)
        if self.asked.max_parallel is not None and len(at_once) > self.asked.max_parallel:
            notes.append(f"each of the {len(at_once)} arrays runs one worker at least, so {len(at_once)} run at once")
        if any(group.resources.gpus for group in groups) and torch_without_cuda():
            notes.append(
                "torch is a build for the CPU here, so nothing would be trained on the GPUs that were asked for"
            )
        if groups and (alone := unshared(self.layout.root)):
            notes.append(alone)
        scripts = tuple(self._scripts(submission, groups, classes, at_once))
        asleep = dict.fromkeys(filter(None, (self._limits.asleep(group.resources.partition) for group in groups)))
        notes = [*self._remarks, *remarks, *self._limits.problems, *asleep, *notes, *elsewhere.notes]
        return Draft(submission, tuple(groups), tuple(classes), scripts, elsewhere, self._wanted, tuple(notes))

    def _nothing_left(self) -> list[Group]:
        """What a request of the command line would be for, which is checked also where nothing is left to ask for."""
        trials = self._wanted or self.survey.trials
        return self._demands.groups(self.layout, trials) if self.options.flags else []

    def _require_countable(self, groups: Sequence[Group]) -> None:
        budget = self.options.budget
        without = [group.name for group in groups if not group.resources.gpus]
        if budget is not None and budget.unit == "GPU-h" and without:
            raise SpecError(
                f"a budget in GPU-h counts GPUs, and the workers of {', '.join(without)} have none; say it in hours of "
                f"cores, such as --budget {budget.hours:g}cpuh"
            )

    def _avoid(self, groups: Sequence[Group]) -> list[str]:
        """Keep workers away from nodes that lost or failed trials: this time, so it is no part of what is asked."""
        places = [place for group in groups for place in partitions_of(group.resources.partition, self._limits)]
        nodes, remarks = excluded_nodes(self._faults, places)
        self._exclude = ",".join(filter(None, (self.asked.exclude, *nodes))) or None
        return remarks

    def _sizes(self, groups: Sequence[Group]) -> tuple[list[int], list[str]]:
        """Workers of every class, and why they are not as many as asked."""
        sizes = worker_allocation.workers(loads(groups, self.asked, self._seconds), self.asked.workers)
        notes = []
        asked, got = self.asked.workers, sum(sizes)
        if asked is not None and groups and got != asked:
            why = "there are not trials for more" if got < asked else "each class of trials needs one at least"
            notes.append(f"{counted(got, 'worker')} and not {asked}: {why}")
        room = self._room(groups)
        if room is not None and got > room.tasks:
            if room.tasks < len(groups):
                raise EnvironmentProblem(
                    f"at least {counted(len(groups), 'worker')} must be queued, one for each class of trials, and you "
                    f"may queue {counted(room.tasks, 'more job')}: "
                    f"{room.because}; wait until some of yours have ended, or cancel some"
                )
            sizes = worker_allocation.shared(room.tasks, [float(size) for size in sizes], sizes)
            notes.append(
                f"{counted(room.tasks, 'worker')} and not {got}, each of which trains more trials: {room.because}"
            )
        return sizes, notes

    def _room(self, groups: Sequence[Group]) -> Room | None:
        """The tightest of the limits that hold for the classes."""
        asked = self.asked
        places = [place for group in groups for place in (group.resources.partition or "").split(",")]
        rooms = [self._limits.room(asked.account, asked.qos, place or None) for place in places]
        return min(rooms, key=lambda room: room.tasks, default=None)

    def _seconds(self, group: Group) -> float | None:
        """Of a usual trial; drafted twice, a class is estimated once."""
        if group.name not in self._trial_s:
            self._trial_s[group.name] = trial_s(self.survey, self.grids, group)
        return self._trial_s[group.name]

    def _classes(self, groups: Sequence[Group], sizes: Sequence[int]) -> tuple[list[ResourceClass], list[int]]:
        """The classes with their arrays, and how many workers of each array may run at once."""
        found = []
        begin = 0
        for group, size in zip(groups, sizes, strict=True):
            tasks = arrays(size, self._limits)
            firsts = [0, *accumulate(tasks)]
            parts = tuple(Array(first, count) for first, count in zip(firsts, tasks, strict=False))
            rows = (begin, begin + len(group.trials))
            found.append(ResourceClass(group.name, rows, group.resources.data(), size, parts))
            begin = rows[1]
        counts = [array.tasks for each in found for array in each.arrays]
        return found, worker_allocation.at_once(counts, self.asked.max_parallel)

    def _scripts(
        self, submission: str, groups: Sequence[Group], classes: Sequence[ResourceClass], at_once: Sequence[int]
    ) -> Iterator[Script]:
        made = self.arrays(submission)
        share = iter(at_once)
        for number, (group, found) in enumerate(zip(groups, classes, strict=True)):
            for array in found.arrays:
                task = ArrayTasks(number, array.first, array.tasks, next(share))
                name = f"{found.name} from {array.first}" if array.first else found.name
                yield Script(name, made.script(task, group.resources))

    def arrays(self, submission: str) -> Arrays:
        """What makes and submits the scripts of a submission of that name."""
        tree: list[str] = []
        if self.packed is not None:
            snapshot = self.packed.snapshot
            tree = shell_lines(self.layout.snapshot_tar(snapshot.tar), snapshot)
        slurm = self.asked.changed(exclude=self._exclude)
        return Arrays(self.layout, submission, slurm, tree, single=self._limits.array_size <= 1)


def _with_environment(slurm: Slurm) -> Slurm:
    """sbatch's own variables stand for what the request leaves open; it would let them override the script."""
    names = ("partition", "account", "qos", "constraint")
    found = {name: os.environ.get(f"SBATCH_{name.upper()}") for name in names if getattr(slurm, name) is None}
    return slurm.changed(**{name: value for name, value in found.items() if value})
