"""Nodes to exclude from a submission: trials were lost or failed there."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from runners.planning.survey import Surveyed
from runners.slurm.submit.cluster_limits import Partition
from runners.slurm.worker_records import read_workers
from store.files.layout import Layout
from store.files.trial_status import AttemptState, trial_state

_SEVERAL = 3
"""Least failures that count against a node; fewer may be chance."""

_MAX_AGE_S = 7 * 86_400.0


class Faults(NamedTuple):
    """Lost and failed trials, by node."""

    lost: Counter[str]
    """Missing trials whose latest attempt never ended and has no process any more."""
    failed: Counter[str]
    """Failed or killed attempts of cells that other nodes trained and this node never did."""


def faults(layout: Layout, wanted: Iterable[Surveyed], trials: Iterable[Surveyed]) -> Faults:
    """Count the faults of nodes: losses in `wanted`, the missing trials, and failures in all `trials`."""
    return Faults(_lost(layout, wanted), _failed(layout, trials))


def _lost(layout: Layout, wanted: Iterable[Surveyed]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for trial in wanted:
        if trial.status != "pending" or not layout.trial(trial.key).exists():
            continue
        attempts = trial_state(layout, trial.key).attempts
        if attempts and attempts[-1].end is None and (node := _node(attempts[-1])) is not None:
            counts[node] += 1
    return counts


def _failed(layout: Layout, trials: Iterable[Surveyed]) -> Counter[str]:
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
    return Counter({node: count for node, count in counts.items() if count >= _SEVERAL})


def _has_suspects(layout: Layout) -> bool:
    failures: Counter[str] = Counter()
    for submission in layout.submission_ids():
        for worker in read_workers(layout, submission):
            if _is_recent(worker.touched):
                failures[worker.node] += worker.failed
    return any(count >= _SEVERAL for count in failures.values())


def _is_recent(moment: float) -> bool:
    return time.time() - moment < _MAX_AGE_S


def _node(attempt: AttemptState) -> str | None:
    place = attempt.start.get("place") or {}
    return str(place["node"]) if place.get("node") else None


def excluded_nodes(found: Faults, places: Sequence[Partition]) -> tuple[list[str], list[str]]:
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
