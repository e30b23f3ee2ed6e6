"""Workers that would not or could not train: their environment differs, or they broke down."""

from typing import NamedTuple

from runners.slurm.workers import WorkerRecord, read_workers
from store.layout import Layout


class Refusal(NamedTuple):
    """Workers that left for one reason."""

    left: str
    """refused: the environment is not the one that was submitted; error: the worker itself broke down."""
    says: str
    n: int
    hosts: dict[str, int]
    last: float
    """Seconds since the epoch."""
    action: str


def refusals(layout: Layout) -> list[Refusal]:
    """Workers of all submissions that left so, by what they said; commonest first."""
    kinds: dict[tuple[str, str], list[WorkerRecord]] = {}
    for submission in layout.submission_ids():
        for record in read_workers(layout, submission):
            if record.left in ("refused", "error"):
                kinds.setdefault((record.left, record.says or "it did not say why"), []).append(record)
    found = [_refusal(left, says, records) for (left, says), records in kinds.items()]
    return sorted(found, key=lambda each: (-each.n, each.left, each.says))


def _refusal(left: str, says: str, records: list[WorkerRecord]) -> Refusal:
    hosts: dict[str, int] = {}
    for record in records:
        hosts[record.node] = hosts.get(record.node, 0) + 1
    where = ",".join(sorted(hosts))
    action = (
        f"install what was submitted on {where}, or leave it out with --exclude {where}"
        if left == "refused"
        else "the output of the task says more: `ablate logs KEY --worker` for a trial that it began"
    )
    return Refusal(left, says, len(records), hosts, max(each.touched for each in records), action)
