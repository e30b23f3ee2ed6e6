"""Checks before anything is queued: requests that the cluster cannot meet, unshared disks, nodes with faults."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from grid.durations import format_duration
from grid.errors import SpecError
from grid.suggestions import suggest_name
from runners.output import format_count
from runners.planning.survey import Surveyed
from runners.slurm.spec import Resources, Slurm
from runners.slurm.submit.cluster_limits import Limits, Partition
from runners.slurm.worker_records import read_workers
from store.files.layout import Layout
from store.files.trial_status import AttemptState, trial_state

_LOCAL_FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))

_LEAST_FAILURES = 3
"""Least failures that count against a node; fewer may be chance."""
_MAX_AGE_S = 7 * 86_400.0


def require_allowed(slurm: Slurm, wanted: Sequence[Resources], limits: Limits) -> None:
    """Refuse names that do not exist and amounts that no partition has.

    Raises:
        SpecError: a partition, account, QOS or GPU type does not exist, or a node or partition is too small.
    """
    if not limits.partitions:
        return
    _require_one_of("account", slurm.account, limits.accounts, "your accounts")
    _require_one_of("qos", slurm.qos, limits.qualities or None, "QOS here")
    for resources in wanted:
        listed = slurm.gpu_option == "gres"  # by sinfo
        _require_any_partition(resources if listed else replace(resources, gpus=0, gpu_type=None), limits)


def _require_any_partition(resources: Resources, limits: Limits) -> None:
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
    for name in names.split(","):
        _require_one_of("partition", name, limits.partitions, "partitions here")
    return [limits.partitions[name] for name in dict.fromkeys(names.split(","))]


def _require_one_of(flag: str, given: str | None, known: Iterable[str] | None, label: str) -> None:
    if given is None or known is None:
        return
    names = sorted(known)
    if given not in names:
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


class Faults(NamedTuple):
    """Lost and failed trials, by node."""

    lost: Counter[str]
    """Missing trials whose latest attempt never ended and has no process any more."""
    failed: Counter[str]
    """Failed or killed attempts of cells that other nodes trained and this node never did."""


def count_faults(layout: Layout, wanted: Iterable[Surveyed], trials: Iterable[Surveyed]) -> Faults:
    """Count the faults of nodes: losses in `wanted`, the missing trials, and failures in all `trials`."""
    return Faults(_count_lost(layout, wanted), _count_failed(layout, trials))


def _count_lost(layout: Layout, wanted: Iterable[Surveyed]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for trial in wanted:
        if trial.status != "pending" or not layout.trial(trial.key).exists():
            continue
        attempts = trial_state(layout, trial.key).attempts
        if attempts and attempts[-1].end is None and (node := _node(attempts[-1])) is not None:
            counts[node] += 1
    return counts


def _count_failed(layout: Layout, trials: Iterable[Surveyed]) -> Counter[str]:
    """Read the trials only if some node had several failures, by its workers' records."""
    counts: Counter[str] = Counter()
    if not _has_suspects(layout):
        return counts
    failures: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    successes: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for trial in trials:
        if trial.status == "pending" or not layout.trial(trial.key).exists():
            continue
        cell = trial.grid, trial.cell
        for attempt in trial_state(layout, trial.key).attempts:
            end, node = attempt.end or {}, _node(attempt)
            if end.get("status") == "ok":
                successes[cell].add(node)
            elif node is not None and end.get("reason") in ("error", "killed") and _is_recent(end["ended"]):
                failures[cell][node] += 1
    for cell, nodes in failures.items():
        for node, count in nodes.items():
            if successes[cell] and node not in successes[cell]:
                counts[node] += count
    return Counter({node: count for node, count in counts.items() if count >= _LEAST_FAILURES})


def _has_suspects(layout: Layout) -> bool:
    failures: Counter[str] = Counter()
    for submission in layout.submission_ids():
        for worker in read_workers(layout, submission):
            if _is_recent(worker.touched):
                failures[worker.node] += worker.failed
    return any(count >= _LEAST_FAILURES for count in failures.values())


def _is_recent(moment: float) -> bool:
    return time.time() - moment < _MAX_AGE_S


def _node(attempt: AttemptState) -> str | None:
    place = attempt.start.get("place") or {}
    return str(place["node"]) if place.get("node") else None


def choose_excluded(found: Faults, places: Sequence[Partition]) -> tuple[list[str], list[str]]:
    """Return the nodes to exclude and remarks; no nodes if they are half of a partition or more."""
    nodes = sorted({*found.lost, *found.failed})
    if not nodes:
        return [], []
    words = ", ".join(
        f"trials {what} on {', '.join(f'{node} ({counts[node]})' for node in sorted(counts))}"
        for what, counts in (("were lost", found.lost), ("failed that other nodes do well", found.failed))
        if counts
    )
    if any(2 * len(nodes) >= partition.nodes for partition in places):
        return [], [f"{words}; these are too many nodes of the partition to do without"]
    return nodes, [f"{words}; no worker is sent there this time"]
