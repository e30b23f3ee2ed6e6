"""Nodes on which trials were lost: the next workers are not sent there, unless that leaves too few."""

from collections import Counter
from collections.abc import Iterable, Sequence

from runners.slurm.limits import Partition
from runners.survey import Surveyed
from store.layout import Layout
from store.status import trial_state


def nodes_that_lost(layout: Layout, wanted: Iterable[Surveyed]) -> Counter[str]:
    """By node, the trials of `wanted` whose latest attempt never ended and whose process is gone."""
    found: Counter[str] = Counter()
    for trial in wanted:
        if trial.status != "pending" or not layout.trial(trial.key).exists():
            continue
        attempts = trial_state(layout, trial.key).attempts
        if attempts and attempts[-1].end is None:
            place = attempts[-1].start.get("place") or {}
            if place.get("node"):
                found[str(place["node"])] += 1
    return found


def avoided(lost: Counter[str], places: Sequence[Partition]) -> tuple[list[str], list[str]]:
    """The nodes to exclude and remarks on it: none where they would be half of a partition or more."""
    if not lost:
        return [], []
    nodes = sorted(lost)
    listed = ", ".join(f"{node} ({lost[node]})" for node in nodes)
    if any(2 * len(nodes) >= place.nodes for place in places):
        return [], [f"trials were lost on {listed}; these are too many nodes of the partition to do without"]
    return nodes, [f"trials were lost on {listed}; no worker is sent there this time"]
