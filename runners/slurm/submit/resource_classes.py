"""Resource classes: trials that need the same workers, and what those workers are.

A cell is looked at once, by the first trial of it: seeds are replicates and need the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

from grid import Planned, Spec
from grid.errors import SpecError
from grid.path import value_at
from runners.output import counted
from runners.planning.survey import Surveyed
from runners.provenance.environment import torch_without_cuda
from runners.slurm.spec import Needs, Slurm, megabytes, minutes
from runners.slurm.worker_resources import Resources, Shortage, roomier, shortage
from store.files.layout import Layout
from store.files.trial_status import trial_state

START_S = 15.0
"""What a worker needs before it can begin a trial, at least: Python and torch come from a shared disk."""

_CPUS_FOR_AUTO = 4
"""Trials per GPU that cores are asked for, where nobody knows yet how many fit."""


class Demand(NamedTuple):
    """What the trials of a cell say of themselves."""

    needs: int | None
    """Which of the `Needs` is theirs; None: none."""
    ranks: int
    threads: int
    checkpoint_s: float
    cuda: bool = False
    """Whether they train on a GPU and nowhere else."""


class WorkerKind(NamedTuple):
    """What of a trial decides its class."""

    needs: int | None
    ranks: int
    short: Shortage


@final
@dataclass(frozen=True)
class Group:
    """Trials of one class, in execution order."""

    name: str
    resources: Resources
    trials: tuple[Surveyed, ...]
    remarks: tuple[str, ...] = ()
    """Where its workers are not what the request says at first sight."""


@final
class Demands:
    """What every cell of some grids needs; `look` is for `runners.planning.grid_cells.walk`.

    `most_cpus` says how many cores the largest node of a partition has; 0 if that is not known. `flags` are the fields
    of the request that the command line gave.
    """

    def __init__(
        self,
        slurm: Slurm,
        most_cpus: Callable[[str | None], int] = lambda _: 0,
        flags: frozenset[str] = frozenset(),
    ) -> None:
        self._slurm = slurm
        self._most_cpus = most_cpus
        self._flags = flags
        self._cells: dict[tuple[str, str], Demand] = {}
        self._fitted: Counter[int] = Counter()
        self._absent: dict[str, SpecError] = {}
        self._present: set[str] = set()
        self._wanted = [{path: _plain(value) for path, value in needs.where.items()} for needs in slurm.needs]

    def look(self, grid: str, planned: Planned) -> None:
        """Note what the trials of a cell need."""
        execution = getattr(planned.trial, "execution", None)
        fits = [at for at, wanted in enumerate(self._wanted) if self._fits(planned.trial, wanted)]
        self._fitted.update(fits)
        self._cells[grid, planned.cell] = Demand(
            fits[0] if fits else None,
            int(getattr(execution, "gpus", 1)),
            int(getattr(execution, "threads", 1)),
            float(getattr(execution, "checkpoint_s", 0.0)),
            getattr(execution, "device", "auto") == "cuda",
        )

    def _fits(self, trial: Spec, wanted: Mapping[str, Any]) -> bool:
        held = [self._has(trial, path, value) for path, value in wanted.items()]  # every path is looked up
        return all(held)

    def _has(self, trial: Spec, path: str, wanted: Any) -> bool:
        try:
            found = value_at(trial, path)
        except SpecError as error:
            self._absent.setdefault(path, error)
            return False
        self._present.add(path)
        if isinstance(found, Spec) and isinstance(wanted, str):
            return found.label == wanted
        return bool(_plain(found) == wanted)

    def check(self) -> list[str]:
        """Remarks on `Needs` that are nobody's.

        Raises:
            SpecError: a path that no trial has, or `seed`.
        """
        for needs in self._slurm.needs:
            for path in needs.where:
                if path == "seed":
                    raise SpecError("trials that differ in their seed need the same; take 'seed' out of where={...}")
                if path not in self._present and path in self._absent:
                    raise SpecError(f"Needs(where={dict(needs.where)!r}) fits no trial: {self._absent[path]}")
        return [
            f"no trial is like Needs(where={dict(needs.where)!r}), so nothing is asked for by it"
            for at, needs in enumerate(self._slurm.needs)
            if not self._fitted[at]
        ]

    def groups(self, layout: Layout, trials: Iterable[Surveyed]) -> list[Group]:
        """`trials` by what their workers need.

        Raises:
            SpecError: the time limit holds no start and checkpoint, there is no more memory to give, or trials are for
                CUDA alone and torch is a build for the CPU.
        """
        found: dict[WorkerKind, list[Surveyed]] = {}
        for trial in trials:
            demand = self._cells[trial.grid, trial.cell]
            found.setdefault(WorkerKind(demand.needs, demand.ranks, self._shortage(layout, trial)), []).append(trial)
        merged: dict[Resources, list[tuple[WorkerKind, list[Surveyed]]]] = {}
        for kind, members in found.items():
            demands = [self._cells[trial.grid, trial.cell] for trial in members]
            resources = self._resources(kind, max(demand.threads for demand in demands))
            self._require_time(resources, max(demand.checkpoint_s for demand in demands))
            self._require_cuda(sum(demand.cuda for demand in demands))
            merged.setdefault(resources, []).append((kind, members))
        return [
            Group(
                " or ".join(self._name(kind) for kind, _ in parts),
                resources,
                tuple(trial for _, members in parts for trial in members),
                tuple(dict.fromkeys(remark for part in parts for remark in self._told(*part, resources))),
            )
            for resources, parts in merged.items()
        ]

    def _shortage(self, layout: Layout, trial: Surveyed) -> Shortage:
        """How much more memory than that of its class a trial is given."""
        if self._slurm.oom != "bigger" or trial.status != "failed":
            return Shortage()
        ends = ((each.start.get("submission"), each.end or {}) for each in trial_state(layout, trial.key).attempts)
        return shortage({str(name): end for name, end in ends if end.get("reason") == "out_of_memory"})

    def _own(self, needs: int | None) -> Needs:
        return self._slurm.needs[needs] if needs is not None else Needs.model_construct(where={})

    def _gpus(self, needs: int | None) -> int:
        own = self._own(needs).gpus
        return self._slurm.gpus if own is None else own

    def _resources(self, kind: WorkerKind, threads: int) -> Resources:
        own, slurm, ranks = self._own(kind.needs), self._slurm, kind.ranks
        gpus = self._gpus(kind.needs)
        wide = -(-gpus // ranks) * ranks
        per_gpu = (own.per_gpu or slurm.per_gpu) if ranks == 1 else 1
        mem = own.mem or slurm.mem
        cpus = own.cpus or slurm.cpus
        drafted = Resources(
            partition=own.partition or slurm.partition,
            time=minutes(own.time or slurm.time),
            gpus=wide,
            gpu_type=(own.gpu_type or slurm.gpu_type) if gpus else None,
            cpus=0,
            mem=_scaled(megabytes(mem), wide, gpus) if mem else None,
            per_gpu=per_gpu,
            per_trial=ranks,
        )
        at_once = drafted.slots * (_CPUS_FOR_AUTO if per_gpu == "auto" else 1)
        usual = at_once * ranks * threads + 1
        usual = min(usual, self._most_cpus(drafted.partition) or usual)
        return roomier(replace(drafted, cpus=_scaled(cpus, wide, gpus) if cpus else usual), kind.short)

    def _told(self, kind: WorkerKind, members: Iterable[Surveyed], resources: Resources) -> Iterator[str]:
        cuda = any(self._cells[trial.grid, trial.cell].cuda for trial in members)
        return self._remarks(kind, resources, cuda=cuda)

    def _remarks(self, kind: WorkerKind, resources: Resources, *, cuda: bool) -> Iterator[str]:
        own, slurm, ranks = self._own(kind.needs), self._slurm, kind.ranks
        gpus, per_gpu = self._gpus(kind.needs), own.per_gpu or slurm.per_gpu
        if not gpus and cuda:
            yield "execution.device is 'cuda' and workers ask for no GPU, so that nodes may refuse them; --gpus 1 asks"
        if ranks > 1 and per_gpu != 1:
            on = f"over {ranks} GPUs" if gpus else f"of {ranks} processes"
            yield f"trials {on} are not trained side by side; per_gpu={per_gpu} is for trials on one"
        if 1 < gpus < resources.gpus:
            yield (
                f"workers of trials over {ranks} GPUs have {resources.gpus} GPUs and not {gpus}, with memory and cores "
                "in proportion"
            )
        for name in sorted(self._flags):
            said = getattr(own, name, None)
            if said is not None and said != getattr(slurm, name):
                yield (
                    f"Needs(where={dict(own.where)!r}) says {name}={said!r}, and is more specific than "
                    f"--{name.replace('_', '-')} {getattr(slurm, name)}"
                )

    def _require_time(self, resources: Resources, checkpoint_s: float) -> None:
        usable = resources.time * 60 - self._slurm.signal_s
        if usable < START_S + checkpoint_s:
            raise SpecError(
                f"a time limit holds at least one checkpoint: workers have {resources.time} min and save "
                f"{self._slurm.signal_s} s before the end, which leaves {usable} s, they need {START_S:g} s to start, "
                f"and these trials save every {checkpoint_s:g} s; raise time, or lower signal_s or "
                "execution.checkpoint_s"
            )

    def _require_cuda(self, trials: int) -> None:
        if trials and torch_without_cuda():
            raise SpecError(
                f"execution.device is 'cuda' in {counted(trials, 'trial')} and torch is a build for the CPU here, "
                "which is what nodes use too; install a CUDA build of torch, or say execution.device='auto'"
            )

    def _name(self, kind: WorkerKind) -> str:
        needs, ranks, short = kind
        parts = [f"{path}={_short(value)}" for path, value in self._wanted[needs].items()] if needs is not None else []
        if ranks > 1:
            parts.append(f"{ranks} GPUs" if self._gpus(needs) else f"{ranks} processes")
        if short.host > 1:
            parts.append(f"{short.host} x memory")
        if short.gpu > 1:
            parts.append(f"{short.gpu} x GPU memory")
        return ", ".join(parts) or "all"


def _scaled(amount: int, wide: int, gpus: int) -> int:
    """What was asked for `gpus`, for `wide` of them."""
    return -(-amount * wide // gpus) if gpus else amount


def _plain(value: object) -> Any:
    if isinstance(value, Spec):
        return value.data()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name") or value.get("kind") or "...")
    return str(value)
