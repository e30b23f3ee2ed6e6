"""Resource classes: trials that need the same workers, and what those workers are.

A cell is looked at once, by the first trial of it: seeds are replicates and need the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, final

from grid import Planned, Spec
from grid.errors import SpecError
from grid.path import value_at
from runners.slurm.spec import Needs, Slurm, megabytes, minutes
from runners.survey import Surveyed
from store.layout import Layout
from store.status import trial_state

_CPUS_FOR_AUTO = 4
"""Trials per GPU that cores are asked for, where nobody knows yet how many fit."""


@final
@dataclass(frozen=True)
class Resources:
    """What one worker is given."""

    partition: str | None
    time: int
    """Minutes."""
    gpus: int
    gpu_type: str | None
    cpus: int
    mem: int | None
    """MiB; None: what the cluster gives."""
    per_gpu: int | Literal["auto"]
    per_trial: int = 1
    """GPUs of one trial; without GPUs, its processes."""

    @property
    def slots(self) -> int:
        """Trials side by side in a worker; the least there will be, where it is found out there."""
        side_by_side = 1 if self.per_gpu == "auto" else self.per_gpu
        return max(1, self.gpus // self.per_trial) * side_by_side if self.gpus else side_by_side

    def data(self) -> dict[str, Any]:
        """As it is recorded."""
        return asdict(self)


class Demand(NamedTuple):
    """What the trials of a cell say of themselves."""

    needs: int | None
    """Which of the `Needs` is theirs; None: none."""
    ranks: int
    threads: int
    checkpoint_s: float


@final
@dataclass(frozen=True)
class Group:
    """Trials of one class, in execution order."""

    name: str
    resources: Resources
    trials: tuple[Surveyed, ...]


@final
class Demands:
    """What every cell of some grids needs; `look` is for `runners.cells.walk`.

    `most_cpus` says how many cores the largest node of a partition has; 0 if that is not known.
    """

    def __init__(self, slurm: Slurm, most_cpus: Callable[[str | None], int] = lambda _: 0) -> None:
        self._slurm = slurm
        self._most_cpus = most_cpus
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
            SpecError: the time limit is shorter than a checkpoint, or twice the memory is not more.
        """
        found: dict[tuple[int | None, int, int], list[Surveyed]] = {}
        for trial in trials:
            demand = self._cells[trial.grid, trial.cell]
            found.setdefault((demand.needs, demand.ranks, self._doubled(layout, trial)), []).append(trial)
        merged: dict[Resources, tuple[list[str], list[Surveyed]]] = {}
        for (needs, ranks, memory), members in found.items():
            demands = [self._cells[trial.grid, trial.cell] for trial in members]
            resources = self._resources(needs, ranks, memory, max(demand.threads for demand in demands))
            self._require_time(resources, max(demand.checkpoint_s for demand in demands))
            names, together = merged.setdefault(resources, ([], []))
            names.append(self._name(needs, ranks, memory))
            together.extend(members)
        return [Group(" or ".join(names), resources, tuple(all_)) for resources, (names, all_) in merged.items()]

    def _doubled(self, layout: Layout, trial: Surveyed) -> int:
        """How many times the memory of its class a trial is given."""
        if self._slurm.oom != "bigger" or trial.status != "failed":
            return 1
        ends = [(found.start.get("submission"), found.end) for found in trial_state(layout, trial.key).attempts]
        out = {submission for submission, end in ends if end is not None and end.get("reason") == "out_of_memory"}
        return int(2 ** len(out))

    def _resources(self, needs: int | None, ranks: int, memory: int, threads: int) -> Resources:
        own = self._slurm.needs[needs] if needs is not None else Needs.model_construct(where={})
        slurm = self._slurm
        gpus = own.gpus if own.gpus is not None else slurm.gpus
        wide = -(-gpus // ranks) * ranks
        factor = wide // gpus if gpus else 1
        per_gpu = (own.per_gpu or slurm.per_gpu) if ranks == 1 else 1
        mem = own.mem or slurm.mem
        cpus = own.cpus or slurm.cpus
        drafted = Resources(
            partition=own.partition or slurm.partition,
            time=minutes(own.time or slurm.time),
            gpus=wide,
            gpu_type=own.gpu_type or slurm.gpu_type,
            cpus=0,
            mem=megabytes(mem) * factor if mem else None,
            per_gpu=per_gpu,
            per_trial=ranks,
        )
        at_once = drafted.slots * (_CPUS_FOR_AUTO if per_gpu == "auto" else 1)
        usual = at_once * ranks * threads + 1
        usual = min(usual, self._most_cpus(drafted.partition) or usual)
        return _roomier(replace(drafted, cpus=cpus * factor if cpus else usual), memory)

    def _require_time(self, resources: Resources, checkpoint_s: float) -> None:
        usable = resources.time * 60 - self._slurm.signal_s
        if usable < checkpoint_s:
            raise SpecError(
                f"a time limit holds at least one checkpoint: workers have {resources.time} min and save "
                f"{self._slurm.signal_s} s before the end, and these trials save every {checkpoint_s:g} s; raise time, "
                "or lower execution.checkpoint_s"
            )

    def _name(self, needs: int | None, ranks: int, memory: int) -> str:
        parts = [f"{path}={_short(value)}" for path, value in self._wanted[needs].items()] if needs is not None else []
        if ranks > 1:
            parts.append(f"{ranks} GPUs" if self._slurm.gpus else f"{ranks} processes")
        if memory > 1:
            parts.append(f"{memory} x memory")
        return ", ".join(parts) or "all"


def _roomier(resources: Resources, memory: int) -> Resources:
    """The resources with `memory` times the memory for a trial: of the host where it was given, and of the GPU."""
    if memory == 1:
        return resources
    side_by_side = 1 if resources.per_gpu == "auto" else max(1, resources.per_gpu // memory)
    if resources.mem is None and (resources.per_gpu == 1 or side_by_side * memory > _number(resources.per_gpu)):
        raise SpecError(
            f"oom='bigger' gives a trial that ran out of memory {memory} x the memory of its class, and that has "
            "neither mem= to multiply nor trials side by side to part; say mem=, a larger gpu_type, or oom='halve'"
        )
    mem = resources.mem * memory if resources.mem is not None else None
    return replace(resources, mem=mem, per_gpu=side_by_side)


def _number(per_gpu: int | Literal["auto"]) -> int:
    return 1 << 10 if per_gpu == "auto" else per_gpu


def _plain(value: object) -> Any:
    if isinstance(value, Spec):
        return value.data()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name") or value.get("kind") or "...")
    return str(value)
