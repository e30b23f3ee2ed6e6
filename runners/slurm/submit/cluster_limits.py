"""Limits of a cluster: sizes of arrays, partitions and their GPUs, by scontrol and sinfo.

sbatch checks accounts, QOS and the number of queued jobs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from grid.errors import EnvironmentProblem
from runners.slurm.scheduler import ask, seconds


@final
@dataclass(frozen=True)
class Partition:
    """A partition, and the largest amounts of its nodes."""

    name: str
    default: bool
    state: str
    """UP; DOWN: jobs wait; INACTIVE or DRAIN: no job may be queued."""
    max_time_s: int | None
    """None: unlimited."""
    nodes: int
    cpus: int = 0
    memory_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Most GPUs of one node, by type; "" for GPUs without a type."""


@final
@dataclass(frozen=True)
class Limits:
    """The limits of a cluster."""

    array_size: int
    """Most tasks of an array; 1: arrays are off."""
    partitions: Mapping[str, Partition]
    """Empty on a machine without a cluster."""
    problem: str | None = None
    """Why the limits are unknown."""

    @property
    def default_partition(self) -> Partition | None:
        """The partition of jobs that name none."""
        return next((each for each in self.partitions.values() if each.default), None)

    def asleep(self, partition: str | None) -> str | None:
        """Return a warning if no job starts in the partitions of a comma-separated list."""
        default = self.default_partition
        names = partition.split(",") if partition else [default.name] if default else []
        known = [self.partitions[name] for name in names if name in self.partitions]
        if not known or any(each.state == "UP" for each in known):
            return None
        states = ", ".join(f"{each.name} is {each.state}" for each in known)
        return f"partition {states}: workers wait there until an administrator sets it UP; `sinfo` shows the others"


def arrays(tasks: int, limits: Limits) -> list[int]:
    """Split `tasks` workers into few arrays of equal size; return their sizes (1: a job without an array)."""
    count = -(-tasks // limits.array_size)
    return [tasks // count + (number < tasks % count) for number in range(count)]


def read_limits() -> Limits:
    """Read the limits of the cluster.

    Raises:
        EnvironmentProblem: SLURM is not installed, or does not answer.
    """
    config = _settings(_need("scontrol", "show", "config"))
    options = _settings(config.get("SchedulerParameters", "").replace(",", "\n"))
    most = _number(config.get("MaxArraySize"))
    size = min(most, _number(options.get("max_array_tasks", str(most))))
    shown = partitions(_need("scontrol", "-o", "show", "partition"), _need("sinfo", "-h", "-o", "%R|%c|%m|%G"))
    return Limits(max(size, 1), shown)


def limits_if_known() -> Limits:
    """Read the limits; on a machine without a cluster, return SLURM's default size of arrays and no partition."""
    try:
        return read_limits()
    except EnvironmentProblem as problem:
        return Limits(1001, {}, f"the cluster's limits are not known, and arrays have SLURM's default size: {problem}")


def partitions(shown: str, nodes: str) -> dict[str, Partition]:
    """Parse `scontrol -o show partition` and sinfo's groups of equal nodes."""
    groups: dict[str, list[list[str]]] = {}
    for line in nodes.splitlines():
        name, *fields = line.split("|")
        if len(fields) == 3:
            groups.setdefault(name, []).append(fields)
    lines = (line for line in shown.splitlines() if line.startswith("PartitionName="))
    fields_of_each = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]
    return {each["PartitionName"]: _partition(each, groups.get(each["PartitionName"], ())) for each in fields_of_each}


def _partition(shown: Mapping[str, str], nodes: Sequence[Sequence[str]]) -> Partition:
    counts = [gpus(gres) for *_, gres in nodes]
    return Partition(
        name=shown["PartitionName"],
        default=shown.get("Default") == "YES",
        state=shown.get("State", "UP"),
        max_time_s=seconds(shown.get("MaxTime", "")),
        nodes=_number(shown.get("TotalNodes")),
        cpus=max((_number(cpus) for cpus, *_ in nodes), default=0),
        memory_mb=max((_number(memory) for _, memory, _ in nodes), default=0),
        gpus={kind: max(each.get(kind, 0) for each in counts) for each in counts for kind in each},
    )


def gpus(gres: str) -> dict[str, int]:
    """Count GPUs by type in a list such as `gpu:a100:4(S:0-1),gpu:h100:2,shard:8`."""
    counts: Counter[str] = Counter()
    for kind, count in re.findall(r"(?:^|,)gpu:(?:([^:,()]+):)?(\d+)", gres):
        counts[kind] += int(count)
    return dict(counts)


def _settings(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _need(program: str, *arguments: str) -> str:
    said = ask(program, *arguments)
    if said.problem:
        raise EnvironmentProblem(
            f"a cluster's limits are read before anything is submitted; {said.problem}; "
            "log in to a machine of the cluster, or wait for its controller"
        )
    return said.text


def _number(text: str | None) -> int:
    match = re.match(r"\d+", text.strip()) if text else None
    return int(match[0]) if match else 0
