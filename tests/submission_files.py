"""Submissions to a cluster that nobody made: their records, their workers, and a scheduler that says as it is told."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from synthetic import Campaign

from ablate.runners.attempts.manifest import write_submission
from ablate.runners.attempts.submission_record import Array, ResourceClass, Submission, write_submission_record
from ablate.runners.attempts.worker_records import WorkerRecord, write_worker
from ablate.runners.backends.backend import Submissions
from ablate.runners.backends.slurm.backend import SlurmBackend
from ablate.runners.backends.slurm.scheduler import QueueStatus, Scheduler, TaskStatus
from ablate.store.files.layout import Layout

FIRST = "20260922T080000-0000a1"
SECOND = "20260922T090000-0000b2"
SMALL: dict[str, Any] = {"steps": 4, "sigma_f": (5,), "sigma_x": (1,)}
"""A campaign of few values."""


def submit(
    campaign: Campaign,
    trials: Sequence[tuple[str, int]],
    *,
    submission: str = FIRST,
    classes: Sequence[tuple[int, Sequence[Array]]] = (),
    **fields: Any,
) -> Submission:
    """A submission of `trials` (label, seed), in `classes` of so many rows; default one, two workers, job 7."""
    write_submission(campaign.layout, submission, [campaign.line(*trial) for trial in trials])
    made, at = [], 0
    for rows, arrays in classes or [(len(trials), [Array(0, 2, 7)])]:
        resources = {"partition": "gpu", "gpus": 1, "time": 60}
        workers = sum(array.tasks for array in arrays)
        made.append(ResourceClass(f"c{len(made)}", (at, at + rows), resources, workers, tuple(arrays)))
        at += rows
    usual = {"machine": "slurm", "written": time.time() - 600, "job": {"retry": False}}
    queued = () if fields.get("machine") in ("local", "inline") else tuple(made)
    record = Submission(submission=submission, classes=queued, **{**usual, **fields})
    write_submission_record(campaign.layout, record)
    return record


def write_record(layout: Layout, number: int, *, submission: str = FIRST, **fields: Any) -> WorkerRecord:
    """The record of worker `number`, an hour at work and touched now unless `fields` say otherwise."""
    usual: dict[str, Any] = {
        "submission": submission, "resource_class": 0, "worker": number, "restarts": 0, "job": f"7_{number}",
        "node": f"n{number}", "host": f"n{number}", "pid": 1, "started": time.time() - 3600, "touched": time.time(),
        "seconds": 3600.0, "gpus": 1, "slots": 2,
    }  # fmt: skip
    record = WorkerRecord(**{**usual, **fields})
    write_worker(layout, record)
    return record


class Scripted(Scheduler):
    """Answers with what it was given, and keeps the questions; as a backend, SLURM with such a scheduler."""

    def list(self, layout: Layout, max_age_s: float = 0.0) -> Any:
        return self.submissions.list(layout, max_age_s)

    @cached_property
    def submissions(self) -> Submissions:
        return Submissions({"slurm": SlurmBackend(self)})

    def __init__(
        self,
        tasks: Mapping[str, TaskStatus] | None = None,
        accounts: Mapping[str, TaskStatus] | None = None,
        named: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Without `tasks` it does not answer."""
        self.tasks, self.accounts, self.named = tasks, accounts or {}, named or {}
        self.asked: list[tuple[str, list[int], list[str]]] = []

    def read_queue(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        self.asked.append(("queue", list(jobs), list(names)))
        if self.tasks is None:
            return QueueStatus({}, None, "the controller is away")
        return QueueStatus(self.tasks, time.time(), None, self.named)

    def read_accounts(self, jobs: Collection[int]) -> QueueStatus:
        self.asked.append(("accounts", list(jobs), []))
        return QueueStatus(self.accounts, time.time())


WAITS = TaskStatus("queued", "Priority")
HELD = TaskStatus("held", "launch_failed_requeued_held")
RUNS = TaskStatus("running", "", "n0", 1800.0)
