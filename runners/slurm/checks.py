"""What a cluster cannot give, said before anything is queued: each problem one sentence with what there is."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from grid.errors import EnvironmentProblem, SpecError
from grid.spec import did_you_mean
from runners.slurm.classes import Resources
from runners.slurm.limits import Limits, Partition
from runners.slurm.spec import Slurm
from runners.tally import duration

_LEAST_BYTES = 64 << 20


def require_allowed(slurm: Slurm, wanted: Sequence[Resources], limits: Limits) -> None:
    """Refuse what is not there; what only sbatch knows, it says itself.

    Raises:
        SpecError: a partition, account, QOS or GPU type that does not exist, or more than a node or a partition has.
    """
    _require_one_of("account", slurm.account, limits.accounts, "your accounts")
    _require_one_of("qos", slurm.qos, limits.qualities or None, "QOS here")
    for resources in wanted:
        place = partition_of(resources.partition, limits)
        _require_time(resources, place)
        _require_gpus(resources, place, limits)
        _require_at_most("cpus", resources.cpus, place.cpus, place)
        _require_at_most("mem", resources.mem or 0, place.memory_mb, place)


def partition_of(name: str | None, limits: Limits) -> Partition:
    """The partition called `name`, or the one of jobs that name none.

    Raises:
        SpecError: there is none.
    """
    if name is None:
        found = limits.default_partition
        if found is None:
            raise SpecError(f"this cluster has no default partition; choose one of {', '.join(limits.partitions)}")
        return found
    _require_one_of("partition", name, limits.partitions, "partitions here")
    return limits.partitions[name]


def _require_one_of(flag: str, given: str | None, known: Iterable[str] | None, they: str) -> None:
    if given is None or known is None:
        return
    names = sorted(known)
    if given not in names:
        listed = ", ".join(names) or "none"
        raise SpecError(f"there is no {flag} {given!r} for you; {they}: {listed}{did_you_mean(given, names)}")


def _require_time(resources: Resources, place: Partition) -> None:
    if place.max_time_s is not None and resources.time * 60 > place.max_time_s:
        raise SpecError(
            f"partition {place.name} allows {duration(place.max_time_s)} and workers are to have "
            f"{duration(resources.time * 60)}; lower --time, workers go on in a new job, or choose another partition"
        )


def _require_gpus(resources: Resources, place: Partition, limits: Limits) -> None:
    if not resources.gpus:
        return
    if not place.gpus:
        others = [each.name for each in limits.partitions.values() if each.gpus]
        there = f"; those with GPUs: {', '.join(others)}" if others else "; no partition here has any"
        raise SpecError(f"partition {place.name} has no GPUs{there}; --gpus 0 trains on the CPU")
    if resources.gpu_type is not None and resources.gpu_type not in place.gpus:
        known = sorted(filter(None, place.gpus))
        listed = f"it has {', '.join(known)}" if known else "its GPUs have no type, leave --gpu-type out"
        near = did_you_mean(resources.gpu_type, known)
        raise SpecError(f"partition {place.name} has no GPU of type {resources.gpu_type!r}; {listed}{near}")
    most = place.gpus[resources.gpu_type] if resources.gpu_type else max(place.gpus.values())
    if resources.gpus > most:
        why = f" (trials over {resources.per_trial} GPUs)" if resources.per_trial > 1 else ""
        _refuse("gpus", f"{resources.gpus}{why}", most, place)


def _require_at_most(flag: str, wanted: int, most: int, place: Partition) -> None:
    if most and wanted > most:
        unit = " MiB" if flag == "mem" else ""
        _refuse(flag, f"{wanted}{unit}", most, place)


def _refuse(flag: str, wanted: str, most: int, place: Partition) -> NoReturn:
    what = {"gpus": "GPUs", "cpus": "cores", "mem": "MiB of memory"}[flag]
    raise SpecError(
        f"the largest node of partition {place.name} has {most} {what}, and a worker is to have {wanted}; "
        f"lower --{flag}, or choose another partition"
    )


def require_room(root: Path) -> None:
    """Refuse a place for a campaign that is read-only or full; nothing is written to find out.

    Raises:
        EnvironmentProblem: it is.
    """
    place = next(each for each in (root, *root.parents) if each.exists())
    if not place.is_dir():
        raise EnvironmentProblem(f"a campaign is a directory, and {place} is a file; choose another place")
    if not os.access(place, os.W_OK | os.X_OK) or os.statvfs(place).f_flag & os.ST_RDONLY:
        raise EnvironmentProblem(f"{place} cannot be written to; choose another campaign directory")
    free = shutil.disk_usage(place).free
    if free < _LEAST_BYTES:
        raise EnvironmentProblem(
            f"a campaign needs {_LEAST_BYTES >> 20} MB of free disk and {place} has {free >> 20} MB; free some space, "
            "or choose another campaign directory"
        )
