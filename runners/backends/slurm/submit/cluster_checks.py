"""Checks that sbatch does not make: time limits of partitions, unshared disks, nodes that lost trials."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ablate.grid.durations import format_duration
from ablate.grid.errors import SpecError
from ablate.runners.backends.slurm.spec import Resources
from ablate.runners.backends.slurm.submit.cluster_limits import Limits, Partition
from ablate.runners.planning.worklist import GridTrial
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import ENDED, State

_LOCAL_FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def require_time(resources: Resources, limits: Limits) -> None:
    """Raise SpecError if all partitions of a worker allow less time: it may be queued and would never start."""
    known = limits.partitions_of(resources.partition)
    allowed = [math.inf if each.max_time_s is None else each.max_time_s for each in known]
    if known and max(allowed) < resources.time * 60:
        listed = " / ".join(f"partition {each.name} allows {format_duration(each.max_time_s or 0)}" for each in known)
        raise SpecError(
            f"{listed} and workers are to have {format_duration(resources.time * 60)}; lower --time, workers go on in "
            "a new job, or choose another partition"
        )


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


def count_lost(layout: Layout, wanted: Iterable[GridTrial]) -> Counter[str]:
    """Count by node the missing trials whose latest attempt never ended and has no process any more."""
    counts: Counter[str] = Counter()
    for trial in wanted:
        if trial.state in (*ENDED, State.RUNNING) or not layout.trial(trial.key).exists():
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
