"""Workers that would not or could not train: another environment, no time, a breakdown, no word of their own."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from runners.slurm.worker_records import WorkerRecord, given_up, read_workers, worker_logs
from store.files.layout import Layout

_NO_GPU = re.compile(r"no CUDA device|torch sees none|build for the CPU")


class WorkerRejection(NamedTuple):
    """Workers that left for one reason."""

    left: str
    """refused: the environment differs from the submitted one. late: too little time was left. error: the worker
    failed. unsaid: the job ended before the worker wrote a record."""
    says: str
    n: int
    hosts: dict[str, int]
    last: float
    """Seconds since the epoch."""
    action: str


class _Left(NamedTuple):
    """One worker that left so."""

    left: str
    says: str
    node: str
    at: float
    output: str = ""


def worker_rejections(layout: Layout) -> list[WorkerRejection]:
    """Workers of all submissions that left so, by what they said; commonest first."""
    kinds: dict[tuple[str, str], list[_Left]] = {}
    fit: set[str] = set()
    for submission in layout.submission_ids():
        records = read_workers(layout, submission)
        fit.update(record.node for record in records if record.left not in ("refused", "error"))
        for found in (*_find_rejections(records), *_unsaid(layout, submission, records)):
            kinds.setdefault((found.left, found.says), []).append(found)
    every = [_refusal(found, fit) for found in kinds.values()]
    return sorted(every, key=lambda each: (-each.n, each.left, each.says))


def _find_rejections(records: list[WorkerRecord]) -> Iterator[_Left]:
    for record in records:
        if record.left in ("refused", "late", "error"):
            yield _Left(record.left, record.says or "it did not say why", record.node, record.touched)


def _unsaid(layout: Layout, submission: str, records: list[WorkerRecord]) -> Iterator[_Left]:
    """Yield workers that by their output are not queued again, unless a record says so already."""
    last = {record.job: record.left for record in records}
    for job, path in worker_logs(layout, submission).items():
        printed = given_up(layout, submission, job, last.get(job))
        if printed is not None:
            yield _Left("unsaid", printed.text, printed.node, path.stat().st_mtime, str(path))


def _refusal(found: list[_Left], fit: set[str]) -> WorkerRejection:
    hosts = dict(Counter(each.node for each in found))
    return WorkerRejection(
        found[0].left, found[0].says, len(found), hosts, max(each.at for each in found), _action(found[0], hosts, fit)
    )


def _action(first: _Left, hosts: dict[str, int], fit: set[str]) -> str:
    """Return advice. Exclude nodes only if others are known to accept these trials."""
    where = ",".join(sorted(hosts))
    others = fit - set(hosts)
    if first.left == "late":
        return "ask for more --time, or a lower --signal-s, then `ablate run`"
    if first.left == "unsaid":
        return f"{first.output} says more; mend it (--setup, setup= of the spec file), then `ablate run`"
    if first.left == "error":
        return "the output of the task says more: `ablate logs KEY --worker` for a trial that it began"
    if others:
        return f"install what was submitted on {where}, or leave it out with --exclude {where}"
    if _NO_GPU.search(first.says):
        return (
            "no node that was tried has what they need: ask for GPUs (--gpus), install a CUDA build of torch, or say "
            "execution.device='auto', then `ablate run`"
        )
    return f"no node has taken these trials yet: install what was submitted on {where}, or submit what is there"
