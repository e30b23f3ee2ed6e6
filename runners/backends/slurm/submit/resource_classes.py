"""Resource classes: trials whose workers need the same resources.

Only the first trial of a cell is examined: seeds are replicates and need the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

from ablate.grid import Planned, Spec
from ablate.grid.errors import SpecError
from ablate.grid.path import value_at
from ablate.runners.backends.slurm.spec import Resources, Slurm, mebibytes, minutes
from ablate.runners.output import format_count
from ablate.runners.planning.worklist import GridTrial
from ablate.runners.provenance.environment import torch_without_cuda

START_S = 15.0
"""Least time that a worker needs to start: it loads Python and torch from a shared disk."""


class Demand(NamedTuple):
    """Requirements of the trials of a cell."""

    needs: int | None
    """Index of their `Needs`; None: no match."""
    ranks: int
    threads: int
    checkpoint_s: float
    cuda: bool = False


class WorkerKind(NamedTuple):
    """Properties of a trial that decide its class."""

    needs: int | None
    ranks: int


@final
@dataclass(frozen=True)
class Group:
    """Trials of one class, in execution order."""

    name: str
    resources: Resources
    trials: tuple[GridTrial, ...]


@final
class Demands:
    """Requirements of every cell; `add_cell` is a visitor for `ablate.runners.planning.worklist.collect_cells`.

    `most_cpus` returns the cores of the largest node of a partition; 0: unknown.
    """

    def __init__(self, slurm: Slurm, most_cpus: Callable[[str | None], int] = lambda _: 0) -> None:
        self._slurm = slurm
        self._requests: dict[int | None, Slurm] = {None: slurm}
        self._requests |= {at: slurm.with_needs(needs) for at, needs in enumerate(slurm.needs)}
        self._most_cpus = most_cpus
        self._cells: dict[tuple[str, str], Demand] = {}
        self._matched: set[int] = set()
        self._missing_paths: dict[str, SpecError] = {}
        self._known_paths: set[str] = set()
        self._where = [{path: _plain(value) for path, value in needs.where.items()} for needs in slurm.needs]

    def add_cell(self, grid: str, planned: Planned) -> None:
        trial = planned.trial  # every path is looked up, for `check`
        fits = [[self._has_value(trial, *each) for each in where.items()] for where in self._where]
        matches = [at for at, each in enumerate(fits) if all(each)]
        self._matched.update(matches)
        self._cells[grid, planned.cell] = Demand(
            matches[0] if matches else None,
            trial.execution.gpus,
            trial.execution.threads,
            trial.execution.checkpoint_s,
            trial.execution.device == "cuda",
        )

    def _has_value(self, trial: Spec, path: str, expected: Any) -> bool:
        try:
            value = value_at(trial, path)
        except SpecError as error:
            self._missing_paths.setdefault(path, error)
            return False
        self._known_paths.add(path)
        if isinstance(value, Spec) and isinstance(expected, str):
            return value.label == expected
        return bool(_plain(value) == expected)

    def check(self) -> None:
        """Raise SpecError for a `Needs` of `seed` or of an unknown path."""
        for needs in self._slurm.needs:
            for path in needs.where:
                if path == "seed":
                    raise SpecError(
                        "Needs(where={'seed': ...}) tells seeds of one cell apart, which need the same; take 'seed' out"
                    )
                if path not in self._known_paths and path in self._missing_paths:
                    raise SpecError(f"Needs(where={dict(needs.where)!r}) fits no trial: {self._missing_paths[path]}")

    @property
    def remarks(self) -> list[str]:
        """A remark for each `Needs` that matches no trial."""
        return [
            f"no trial matches Needs(where={dict(needs.where)!r}), so it has no effect"
            for at, needs in enumerate(self._slurm.needs)
            if at not in self._matched
        ]

    def groups(self, trials: Iterable[GridTrial]) -> list[Group]:
        """Group `trials` by the resources of their workers.

        Raises SpecError if a time limit is too short for a start and a checkpoint, or if trials need CUDA and torch is
        a build for the CPU.
        """
        by_kind: dict[WorkerKind, list[GridTrial]] = {}
        for trial in trials:
            demand = self._cells[trial.grid, trial.cell]
            by_kind.setdefault(WorkerKind(demand.needs, demand.ranks), []).append(trial)
        merged: dict[Resources, list[tuple[WorkerKind, list[GridTrial]]]] = {}
        for kind, members in by_kind.items():
            demands = [self._cells[trial.grid, trial.cell] for trial in members]
            resources = self._resources(kind, max(demand.threads for demand in demands))
            self._require_time(resources, max(demand.checkpoint_s for demand in demands))
            count = sum(demand.cuda for demand in demands)
            if count and not self._slurm.python and torch_without_cuda():
                raise SpecError(
                    f"execution.device is 'cuda' in {format_count(count, 'trial')} and torch is a build for the CPU "
                    "here, which is what nodes use too; install a CUDA build of torch, or say execution.device='auto'"
                )
            merged.setdefault(resources, []).append((kind, members))
        return [
            Group(
                " or ".join(self._name(kind) for kind, _ in parts),
                resources,
                tuple(trial for _, members in parts for trial in members),
            )
            for resources, parts in merged.items()
        ]

    def _resources(self, kind: WorkerKind, threads: int) -> Resources:
        request = self._requests[kind.needs]
        ranks = _ranks_per_node(request, kind.ranks)
        gpus = -(-request.gpus // ranks) * ranks
        resources = Resources(
            partition=request.partition,
            time=minutes(request.time),
            gpus=gpus,
            gpu_type=request.gpu_type,
            cpus=0,
            mem=_scale(mebibytes(request.mem), gpus, request.gpus) if request.mem else None,
            per_gpu=request.per_gpu if kind.ranks == 1 else 1,
            per_trial=kind.ranks,
            nodes=request.nodes,
        )
        if request.cpus:
            cpus = _scale(request.cpus, gpus, request.gpus)
        else:
            cpus = resources.slots * ranks * threads + 1
            cpus = min(cpus, self._most_cpus(resources.partition) or cpus)
        return replace(resources, cpus=cpus)

    def _require_time(self, resources: Resources, checkpoint_s: float) -> None:
        usable = resources.time * 60 - self._slurm.signal_s
        if usable < START_S + checkpoint_s:
            raise SpecError(
                f"time={resources.time} min holds no checkpoint: workers save {self._slurm.signal_s} s before the end, "
                f"which leaves {usable} s, they need {START_S:g} s to start, and these trials save every "
                f"{checkpoint_s:g} s; raise time, or lower signal_s or execution.checkpoint_s"
            )

    def _name(self, kind: WorkerKind) -> str:
        needs, ranks = kind
        where = {} if needs is None else self._where[needs]
        shown = {
            path: value.get("name") or value.get("kind") or "..." if isinstance(value, Mapping) else value
            for path, value in where.items()
        }
        parts = [f"{path}={value}" for path, value in shown.items()]
        if ranks > 1:
            parts.append(f"{ranks} GPUs" if self._requests[needs].gpus else f"{ranks} processes")
        return ", ".join(parts) or "all"


def _ranks_per_node(request: Slurm, ranks: int) -> int:
    """Return the GPUs or processes of a trial on each node; a worker of several nodes trains one trial at a time."""
    nodes = request.nodes
    if nodes > 1 and (ranks % nodes or ranks < request.gpus * nodes):
        each = format_count(request.gpus, "GPU") if request.gpus else "a process"
        raise SpecError(
            f"execution.gpus={ranks} does not fill nodes={nodes} with {each} each; say "
            f"execution.gpus={nodes * max(1, request.gpus)}, or change nodes or gpus"
        )
    return ranks // nodes


def _scale(amount: int, gpus: int, requested: int) -> int:
    """Scale an amount for `requested` GPUs to `gpus`, rounded up."""
    return -(-amount * gpus // requested) if requested else amount


def _plain(value: object) -> Any:
    if isinstance(value, Spec):
        return value.data()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
