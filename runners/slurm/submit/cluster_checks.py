"""Checks before anything is queued: requests that the cluster cannot meet, unshared disks, nodes with faults."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from grid.errors import SpecError
from grid.suggestions import suggest_name
from runners.output import duration
from runners.planning.survey import Surveyed
from runners.slurm.spec import Resources, Slurm
from runners.slurm.submit.cluster_limits import Limits, Partition
from runners.slurm.worker_records import read_workers
from store.files.layout import Layout
from store.files.trial_status import AttemptState, trial_state

_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
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
        _require_any_partition(resources, limits)


def _require_any_partition(resources: Resources, limits: Limits) -> None:
    errors = []
    for partition in partitions_of(resources.partition, limits):
        try:
            _require_time(resources, partition)
            _require_gpus(resources, partition, limits)
            _require_at_most("cpus", resources.cpus, partition.cpus, partition)
            _require_at_most("mem", resources.mem or 0, partition.memory_mb, partition)
        except SpecError as error:
            errors.append(error)
        else:
            return
    if len(errors) > 1:
        raise SpecError(f"none of the partitions takes the workers: {' / '.join(map(str, errors))}")
    raise errors[0]


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


def _require_time(resources: Resources, partition: Partition) -> None:
    if partition.max_time_s is not None and resources.time * 60 > partition.max_time_s:
        raise SpecError(
            f"partition {partition.name} allows {duration(partition.max_time_s)} and workers are to have "
            f"{duration(resources.time * 60)}; lower --time, workers go on in a new job, or choose another partition"
        )


def _require_gpus(resources: Resources, partition: Partition, limits: Limits) -> None:
    if not resources.gpus:
        return
    if not partition.gpus:
        others = [each.name for each in limits.partitions.values() if each.gpus]
        hint = f"; those with GPUs: {', '.join(others)}" if others else "; no partition here has any"
        raise SpecError(f"partition {partition.name} has no GPUs{hint}; --gpus 0 trains on the CPU")
    if resources.gpu_type is not None and resources.gpu_type not in partition.gpus:
        known = sorted(filter(None, partition.gpus))
        listed = f"it has {', '.join(known)}" if known else "its GPUs have no type, leave --gpu-type out"
        near = suggest_name(resources.gpu_type, known)
        raise SpecError(f"partition {partition.name} has no GPU of type {resources.gpu_type!r}; {listed}{near}")
    most = partition.gpus[resources.gpu_type] if resources.gpu_type else max(partition.gpus.values())
    if resources.gpus > most:
        why = f" (trials over {resources.per_trial} GPUs)" if resources.per_trial > 1 else ""
        _refuse("gpus", f"{resources.gpus}{why}", most, partition)


def _require_at_most(flag: str, wanted: int, most: int, partition: Partition) -> None:
    if most and wanted > most:
        unit = " MiB" if flag == "mem" else ""
        _refuse(flag, f"{wanted}{unit}", most, partition)


def _refuse(flag: str, wanted: str, most: int, partition: Partition) -> NoReturn:
    what = {"gpus": "GPUs", "cpus": "cores", "mem": "MiB of memory"}[flag]
    raise SpecError(
        f"the largest node of partition {partition.name} has {most} {what}, and a worker is to have {wanted}; "
        f"lower --{flag}, or choose another partition"
    )


def warn_if_not_shared(root: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Return a warning if the campaign `root` is likely on a disk that only this machine has."""
    mount, kind = _find_mount(root, mounts)
    local = next((folder for folder in _LOCAL_FOLDERS if root.is_relative_to(folder)), None)
    if kind in _MEMORY_FILE_SYSTEMS:
        why = f"it is on {kind}, the memory of this machine"
    elif local is not None and not (mount is not None and mount.is_relative_to(local)):
        why = f"{local} is on a disk of this machine as a rule"
    else:
        return None
    return (
        f"nodes may not see the campaign {root}: {why}, and workers that cannot write there end with 0:53 and no word; "
        "choose a --campaign on a file system that nodes share"
    )


def _find_mount(root: Path, mounts: Path) -> tuple[Path | None, str]:
    """Find the mount point and type of the file system of `root`."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None, ""
    mount: tuple[Path | None, str] = (None, "")
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        path = Path(os.fsdecode(fields[1].encode().decode("unicode_escape").encode("latin-1")))
        if root.is_relative_to(path) and (mount[0] is None or len(path.parts) >= len(mount[0].parts)):
            mount = path, fields[2]
    return mount


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
