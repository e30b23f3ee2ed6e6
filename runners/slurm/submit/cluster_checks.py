"""Checks before anything is queued: requests that the cluster cannot meet, unshared disks, nodes that lost trials."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.grid.durations import format_duration
from ablate.grid.errors import SpecError
from ablate.grid.suggestions import suggest_name
from ablate.runners.output import format_count
from ablate.runners.planning.survey import Surveyed
from ablate.runners.slurm.spec import Resources, Slurm
from ablate.runners.slurm.submit.cluster_limits import Limits, Partition
from ablate.store.files.layout import Layout
from ablate.store.files.trial_status import trial_state

_LOCAL_FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def require_allowed(slurm: Slurm, wanted: Sequence[Resources], limits: Limits) -> None:
    """Raise SpecError if an account, QOS, partition or GPU type does not exist, or a node or partition is too small."""
    if not limits.partitions:
        return
    _require_one_of("account", slurm.account, limits.accounts, "your accounts")
    _require_one_of("qos", slurm.qos, limits.qualities or None, "QOS here")
    for each in wanted:
        listed = slurm.gpu_option == "gres"  # by sinfo
        resources = each if listed else replace(each, gpus=0, gpu_type=None)
        problems = [_problem(resources, partition, limits) for partition in partitions_of(resources.partition, limits)]
        if None not in problems:
            intro = "none of the partitions takes the workers: " if len(problems) > 1 else ""
            raise SpecError(f"{intro}{' / '.join(filter(None, problems))}")


def partitions_of(names: str | None, limits: Limits) -> list[Partition]:
    """Return the partitions of a comma-separated list; None: the default partition. Without SLURM, none is known.

    Raises SpecError if a partition does not exist.
    """
    if not limits.partitions:
        return []
    if names is None:
        default = limits.default_partition
        if default is None:
            raise SpecError(f"this cluster has no default partition; choose one of {', '.join(limits.partitions)}")
        return [default]
    for name in names.split(","):
        _require_one_of("partition", name, limits.partitions, "partitions here")
    return [limits.partitions[name] for name in dict.fromkeys(names.split(","))]


def _require_one_of(flag: str, given: str | None, known: Iterable[str] | None, label: str) -> None:
    names = sorted(known or ())
    if given is not None and known is not None and given not in names:
        listed = ", ".join(names) or "none"
        raise SpecError(f"there is no {flag} {given!r} for you; {label}: {listed}{suggest_name(given, names)}")


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


def count_lost(layout: Layout, wanted: Iterable[Surveyed]) -> Counter[str]:
    """Count by node the missing trials whose latest attempt never ended and has no process any more."""
    counts: Counter[str] = Counter()
    for trial in wanted:
        if trial.status != "pending" or not layout.trial(trial.key).exists():
            continue
        attempts = trial_state(layout, trial.key).attempts
        node = (attempts[-1].start.get("place") or {}).get("node") if attempts else None
        if node and attempts[-1].end is None:
            counts[str(node)] += 1
    return counts


def choose_excluded(lost: Counter[str], places: Sequence[Partition]) -> tuple[list[str], list[str]]:
    """Return the nodes that lost trials, to exclude, and remarks; no nodes if they are half of a partition or more."""
    if not lost:
        return [], []
    nodes = sorted(lost)
    words = f"trials were lost on {', '.join(f'{node} ({lost[node]})' for node in nodes)}"
    if any(2 * len(nodes) >= partition.nodes for partition in places):
        return [], [f"{words}; these are too many nodes of the partition to do without"]
    return nodes, [f"{words}; no worker is sent there this time"]
