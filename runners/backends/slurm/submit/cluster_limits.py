"""Limits that must be known before sbatch can be asked: the size of arrays, and what partitions have.

`sbatch --test-only` tells the rest: what a partition, an account or a QOS has and allows, and how many tasks may be
queued.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.backends.slurm.scheduler import ask, seconds


@final
@dataclass(frozen=True)
class Partition:
    """A partition."""

    name: str
    default: bool
    max_time_s: int | None
    """None: unlimited. Unless EnforcePartLimits is set, SLURM takes jobs above it, which wait for ever."""
    nodes: int
    cpus: int = 0
    """Cores of its largest node; 0: unknown."""


@final
@dataclass(frozen=True)
class Limits:
    """The limits of the cluster; no partition is known without one."""

    array_size: int
    """Most tasks of an array; 1: arrays are off."""
    partitions: Mapping[str, Partition]
    problems: tuple[str, ...] = ()

    def partitions_of(self, names: str | None) -> list[Partition]:
        """Return the known partitions of a comma-separated list; None: the default partition."""
        if names is None:
            return [each for each in self.partitions.values() if each.default]
        return [self.partitions[name] for name in dict.fromkeys(names.split(",")) if name in self.partitions]


def arrays(tasks: int, limits: Limits) -> list[int]:
    """Split `tasks` workers into few arrays of equal size; return their sizes."""
    count = -(-tasks // limits.array_size)
    return [tasks // count + (number < tasks % count) for number in range(count)]


def read_limits() -> Limits:
    """Read the limits of the cluster. Raises EnvironmentProblem if SLURM is not installed, or does not answer."""
    config = dict(re.findall(r"^(\w+) *= *(.*?) *$", _need("scontrol", "show", "config"), re.MULTILINE))
    options = dict(re.findall(r"(\w+)=(\d+)", config.get("SchedulerParameters", "")))
    sizes = [_number(size) for size in (config.get("MaxArraySize"), options.get("max_array_tasks")) if size]
    shown = partitions(_need("scontrol", "-o", "show", "partition"), _need("sinfo", "-h", "-o", "%R|%c"))
    return Limits(max(1, min(sizes, default=1)), shown)


def limits_if_known() -> Limits:
    """Read the limits; on a machine without a cluster, return SLURM's defaults without a partition."""
    try:
        return read_limits()
    except EnvironmentProblem as problem:
        reason = f"the cluster's limits and queue are not known, and arrays have SLURM's default size: {problem}"
        return Limits(1001, {}, (reason,))


def partitions(shown: str, nodes: str) -> dict[str, Partition]:
    """Parse `scontrol -o show partition` and sinfo's groups of equal nodes: `partition|cores`."""
    groups = [(name, _number(cores)) for name, _, cores in (line.partition("|") for line in nodes.splitlines())]
    lines = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in shown.splitlines()]
    return {
        values["PartitionName"]: Partition(
            name=values["PartitionName"],
            default=values.get("Default") == "YES",
            max_time_s=seconds(values.get("MaxTime", "")),
            nodes=_number(values.get("TotalNodes", "")),
            cpus=max((cores for name, cores in groups if name == values["PartitionName"]), default=0),
        )
        for values in lines
        if "PartitionName" in values
    }


def _need(program: str, *arguments: str) -> str:
    said = ask(program, *arguments)
    if said.problem:
        raise EnvironmentProblem(
            f"{said.problem}, so the cluster's limits cannot be read and nothing is submitted; log in to a machine of "
            "the cluster, or wait for its controller"
        )
    return said.text


def _number(text: str) -> int:
    """Return the number at the beginning, as of `64+`; 0 without one."""
    match = re.match(r"\d+", text.strip())
    return int(match[0]) if match else 0
