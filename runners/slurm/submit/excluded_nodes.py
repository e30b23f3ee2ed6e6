"""Nodes on which trials were lost or failed: the next workers are not sent there, unless that leaves too few."""

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
"""Failures on one node that other nodes do not have; fewer may be chance."""

_LATELY_S = 7 * 86_400.0
"""For so long a node is not forgiven."""


class Faults(NamedTuple):
    """What went wrong with trials, counted by node."""

    lost: Counter[str]
    """Trials to train whose latest attempt never ended and whose process is gone."""
    failed: Counter[str]
    """Attempts that ended by an error or were killed, in cells that other nodes did well and this one never."""


def faults(layout: Layout, wanted: Iterable[Surveyed], trials: Iterable[Surveyed]) -> Faults:
    """What the nodes did to the trials `wanted`, which are to be trained, and to all `trials` of the grids."""
    return Faults(_lost(layout, wanted), _failed(layout, trials))


def _lost(layout: Layout, wanted: Iterable[Surveyed]) -> Counter[str]:
    found: Counter[str] = Counter()
    for trial in wanted:
        if trial.status != "pending" or not layout.trial(trial.key).exists():
            continue
        attempts = trial_state(layout, trial.key).attempts
        node = _node(attempts[-1]) if attempts and attempts[-1].end is None else None
        if node is not None:
            found[node] += 1
    return found


def _failed(layout: Layout, trials: Iterable[Surveyed]) -> Counter[str]:
    """Trials are looked into only where a node had several failures, as its workers say."""
    found: Counter[str] = Counter()
    if not _suspects(layout):
        return found
    bad: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    well: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for trial in trials:
        if trial.status == "pending" or not layout.trial(trial.key).exists():
            continue
        cell = trial.grid, trial.cell
        for attempt in trial_state(layout, trial.key).attempts:
            end, node = attempt.end or {}, _node(attempt)
            if end.get("status") == "ok":
                well[cell].add(node)
            elif node is not None and end.get("reason") in ("error", "killed") and _is_late(end["ended"]):
                bad[cell][node] += 1
    for cell, nodes in bad.items():
        for node, count in nodes.items():
            if well[cell] and node not in well[cell]:
                found[node] += count
    return Counter({node: count for node, count in found.items() if count >= _SEVERAL})


def _suspects(layout: Layout) -> set[str]:
    """Nodes whose workers had several failures lately."""
    failures: Counter[str] = Counter()
    for submission in layout.submission_ids():
        for worker in read_workers(layout, submission):
            if _is_late(worker.touched):
                failures[worker.node] += worker.failed
    return {node for node, count in failures.items() if count >= _SEVERAL}


def _is_late(moment: float) -> bool:
    return time.time() - moment < _LATELY_S


def _node(attempt: AttemptState) -> str | None:
    place = attempt.start.get("place") or {}
    return str(place["node"]) if place.get("node") else None


def excluded_nodes(found: Faults, places: Sequence[Partition]) -> tuple[list[str], list[str]]:
    """The nodes to exclude and remarks on it: none where they would be half of a partition or more."""
    nodes = sorted({*found.lost, *found.failed})
    if not nodes:
        return [], []
    said = [
        f"trials {what} on {', '.join(f'{node} ({counts[node]})' for node in sorted(counts))}"
        for what, counts in (("were lost", found.lost), ("failed that other nodes do well", found.failed))
        if counts
    ]
    words = ", ".join(said)
    if any(2 * len(nodes) >= place.nodes for place in places):
        return [], [f"{words}; these are too many nodes of the partition to do without"]
    return nodes, [f"{words}; no worker is sent there this time"]
