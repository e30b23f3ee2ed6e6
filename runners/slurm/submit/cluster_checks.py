"""Checks before anything is queued: requests that the cluster cannot meet, unshared disks, nodes that lost trials."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grid.durations import format_duration
from grid.errors import SpecError
from grid.suggestions import suggest_name
from runners.output import format_count
from runners.planning.survey import Surveyed
from runners.slurm.spec import Resources, Slurm
from runners.slurm.submit.cluster_limits import Limits, Partition
from store.files.layout import Layout
from store.files.trial_status import trial_state

_LOCAL_FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def require_allowed(slurm: Slurm, wanted: Sequence[Resources], limits: Limits) -> None:
    """Refuse partitions that do not exist and amounts that no partition has.

    Raises:
        SpecError: a partition or GPU type does not exist, or a node or partition is too small.
    """
    if not limits.partitions:
        return
    for resources in wanted:
        if slurm.gpu_option != "gres":  # sinfo lists only those
            resources = replace(resources, gpus=0, gpu_type=None)
        problems = [_problem(resources, partition, limits) for partition in partitions_of(resources.partition, limits)]
        if None not in problems:
            intro = "none of the partitions takes the workers: " if len(problems) > 1 else ""
            raise SpecError(f"{intro}{' / '.join(filter(None, problems))}")


def partitions_of(names: str | None, limits: Limits) -> list[Partition]:
    """Return the partitions of a comma-separated list; None: the default partition. Without SLURM, none is known.

    Raises:
        SpecError: a partition does not exist.
    """
    if not limits.partitions:
        return []
    if names is None:
        default = limits.default_partition
        if default is None:
            raise SpecError(f"this cluster has no default partition; choose one of {', '.join(limits.partitions)}")
        return [default]
    wanted, known = dict.fromkeys(names.split(",")), sorted(limits.partitions)
    for name in wanted:
        if name not in known:
            near = suggest_name(name, known)
            raise SpecError(f"there is no partition {name!r} for you; partitions here: {', '.join(known)}{near}")
    return [limits.partitions[name] for name in wanted]


def _problem(resources: Resources, partition: Partition, limits: Limits) -> str | None:
    """Return why the partition cannot run such a worker; None if it can."""
    if partition.max_time_s is not None and resources.time * 60 > partition.max_time_s:
        return (
            f"partition {partition.name} allows {format_duration(partition.max_time_s)} and workers are to have "
            f"{format_duration(resources.time * 60)}; lower --time, workers go on in a new job, or choose another "
            "partition"
        )
    if partition.nodes < resources.nodes:
        return f"partition {partition.name} has {format_count(partition.nodes, 'node')}; lower nodes={resources.nodes}"
    if resources.gpus and not partition.gpus:
        others = [each.name for each in limits.partitions.values() if each.gpus]
        hint = f"; those with GPUs: {', '.join(others)}" if others else "; no partition here has any"
        return f"partition {partition.name} has no GPUs{hint}; --gpus 0 trains on the CPU"
    if resources.gpus and resources.gpu_type not in (None, *partition.gpus):
        known = sorted(filter(None, partition.gpus))
        listed = f"it has {', '.join(known)}" if known else "its GPUs have no type, leave --gpu-type out"
        near = suggest_name(str(resources.gpu_type), known)
        return f"partition {partition.name} has no GPU of type {resources.gpu_type!r}; {listed}{near}"
    most_gpus = partition.gpus.get(resources.gpu_type or "", max(partition.gpus.values(), default=0))
    why = f" (trials over {resources.per_trial} GPUs)" if resources.per_node > 1 else ""
    for flag, wanted, most, unit in (
        ("gpus", resources.gpus, most_gpus, f"GPUs{why}"),
        ("cpus", resources.cpus, partition.cpus, "cores"),
        ("mem", resources.mem or 0, partition.memory_mb, "MiB of memory"),
    ):
        if most and wanted > most:
            return (
                f"the largest node of partition {partition.name} has {most} {unit}, and a worker is to have {wanted}; "
                f"lower --{flag}, or choose another partition"
            )
    return None


def warn_if_not_shared(root: Path) -> str | None:
    """Return a warning if the campaign `root` is likely on a disk that only this machine has."""
    local = next((folder for folder in _LOCAL_FOLDERS if root.is_relative_to(folder)), None)
    mounted_below = local and any(each.is_mount() for each in (root, *root.parents) if local in each.parents)
    if local is None or mounted_below:
        return None
    return (
        f"nodes may not see the campaign {root}: {local} is on a disk of this machine as a rule, and workers that "
        "cannot write there end with 0:53 and no word; choose a --campaign on a file system that nodes share"
    )


def nodes_that_lost(layout: Layout, wanted: Iterable[Surveyed]) -> Counter[str]:
    """Count, by node, the trials of `wanted` whose latest attempt never ended and has no process any more."""
    counts: Counter[str] = Counter()
    for trial in wanted:
        if trial.status == "pending" and layout.trial(trial.key).exists():
            attempts = trial_state(layout, trial.key).attempts
            place = attempts[-1].start.get("place") or {} if attempts and attempts[-1].end is None else {}
            counts.update([place["node"]] if place.get("node") else [])
    return counts


def choose_excluded(lost: Mapping[str, int], places: Sequence[Partition]) -> tuple[list[str], list[str]]:
    """Return the nodes to exclude, and remarks; no nodes if they are half of a partition or more."""
    if not lost:
        return [], []
    words = f"trials were lost on {', '.join(f'{node} ({lost[node]})' for node in sorted(lost))}"
    if any(2 * len(lost) >= partition.nodes for partition in places):
        return [], [f"{words}; these are too many nodes of the partition to do without"]
    return sorted(lost), [f"{words}; no worker is sent there this time"]
