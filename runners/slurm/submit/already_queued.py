"""Trials that workers of earlier submissions will take, and the repair of submissions that were cut off."""

import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from grid.errors import EnvironmentProblem, StoreError
from runners.attempts.manifest import Manifest
from runners.attempts.submission_record import Submission, submission_records, write_submission_record
from runners.output import format_count
from runners.planning.survey import Surveyed
from runners.slurm.scheduler import QueueStatus, Scheduler
from runners.slurm.submissions import SubmissionStatus, read_submission_status
from runners.slurm.worker_records import read_cancelled
from store.files.layout import Layout
from store.files.trial_status import local_process, trial_state

_BY_NOW_S = 600.0
"""Without locks, a submission whose record is older than this is abandoned."""

_SURELY_S = 180.0
"""The same with locks, which may hold on one host only. The record is written before each sbatch, which takes less."""


@final
@dataclass
class AlreadyQueued:
    """Trials that are queued already."""

    submissions: Counter[str] = field(default_factory=Counter)
    """Trials by the submission whose workers take them."""
    trials: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def queued_elsewhere(layout: Layout, wanted: Sequence[Surveyed], scheduler: Scheduler) -> AlreadyQueued:
    """Find which of `wanted` workers of earlier submissions will take.

    Raises:
        EnvironmentProblem: the scheduler does not answer.
    """
    statuses, notes = read_submission_status(layout, scheduler)
    queued = AlreadyQueued(notes=list(notes))
    by_key = {trial.key: trial for trial in wanted}
    for status in statuses:
        submission = status.record.submission
        rows = _live_rows(status, notes)
        try:
            manifest = Manifest(layout, submission) if rows else None
            keys = {manifest.trial(row) for row in rows} if manifest is not None else set()
        except StoreError as error:  # its workers cannot read it either; a trial that is queued twice is trained once
            queued.notes.append(f"which trials submission {submission} has queued is not known: {error}")
            continue
        new = {key for key in keys & by_key.keys() - queued.trials if _takes(layout, status, by_key[key])}
        if new:
            queued.submissions[submission] = len(new)
            queued.trials |= new
        if status.held is not None:
            queued.notes.append(status.held)
    return queued


def _live_rows(status: SubmissionStatus, notes: Sequence[str]) -> list[int]:
    rows: list[int] = []
    for each in status.record.classes:
        standing = status.standing(each.name)
        if standing == "unknown" and not status.spent:
            why = f" ({'; '.join(notes)})" if notes else ""
            raise EnvironmentProblem(
                f"whether submission {status.record.submission} still has workers is not known{why}, so trials could "
                "be queued twice; try again when the controller answers"
            )
        if standing in ("live", "unknown") or (standing == "held" and not status.record.released):
            rows.extend(range(*each.rows))
    return rows


def _takes(layout: Layout, status: SubmissionStatus, trial: Surveyed) -> bool:
    """Return True if a worker of the submission would train it."""
    if trial.key in status.cancelled.trials:
        return False
    if status.spent:
        live = trial_state(layout, trial.key).live
        return live is not None and live.start.get("submission") == status.record.submission
    if trial.status == "ok":
        return bool(status.record.job.get("again"))
    if trial.status != "failed":
        return True
    latest = trial_state(layout, trial.key).attempts[-1]
    return bool(status.record.job.get("retry")) and latest.start.get("submission") != status.record.submission


def half_submitted(layout: Layout, *, certain: bool, cancel: Callable[[str], None]) -> list[str]:
    """Remove submissions whose shell died before it knew all its jobs; return a sentence for each.

    `certain` is True if locks are enforced. `cancel` cancels the jobs of a name.

    Raises:
        EnvironmentProblem: a shell on another host may still be submitting.
    """
    notes = []
    for record in _slurm_records(layout):
        submission = record.submission
        has_begun = (layout.submission(submission) / "workers").exists()  # jobs are held until all are known
        if has_begun or not record.has_unknown_jobs:
            continue
        wait_s = _remaining_s(record, certain=certain)
        if wait_s > 0:
            raise EnvironmentProblem(
                f"a shell on {record.host or 'another host'} is queueing submission {submission}, or was cut off; the "
                f"same command tells which in {math.ceil(wait_s)} s"
            )
        cancel(record.job_name)
        shutil.rmtree(layout.submission(submission))
        notes.append(f"submission {submission} was cut off before its jobs were known; it is taken back")
    return notes


def _remaining_s(record: Submission, *, certain: bool) -> float:
    """Return for how many seconds its shell may still be submitting."""
    alive = local_process(vars(record))
    if alive is False or (record.pid == os.getpid() and alive):
        return 0.0
    return (_SURELY_S if certain else _BY_NOW_S) - (time.time() - record.written)


def let_go(layout: Layout, scheduler: Scheduler, release: Callable[[int], object]) -> list[str]:
    """Release jobs whose shell died after it knew them all; return a sentence for each submission.

    Raises:
        EnvironmentProblem: the scheduler refuses, or the campaign cannot be written.
    """
    notes = []
    for record in _slurm_records(layout):
        if record.released or record.has_unknown_jobs:
            continue
        try:
            is_cancelled = read_cancelled(layout, record.submission).all
        except StoreError:  # it may have been cancelled
            is_cancelled = True
        queue = QueueStatus({}, None) if is_cancelled else scheduler.read_queue(record.jobs, ())
        if queue.asked is None:  # the next question reports that the scheduler does not answer
            continue
        held = {name for name, task in queue.tasks.items() if task.state == "held" and "JobHeldUser" in task.words}
        jobs = sorted({int(name.partition("_")[0]) for name in held})
        for job in jobs:
            release(job)
        write_submission_record(layout, replace(record, released=True))
        if jobs:
            listed = " ".join(map(str, jobs))
            notes.append(f"submission {record.submission} was cut off before its jobs were released; {listed} are now")
    return notes


def _slurm_records(layout: Layout) -> Iterator[Submission]:
    """Yield the readable records of submissions to a cluster."""
    for record in submission_records(layout):
        if isinstance(record, Submission) and record.machine == "slurm":
            yield record


def describe_already_queued(queued: AlreadyQueued, of: Collection[Surveyed]) -> str | None:
    """Describe in a sentence which of the trials are queued already."""
    if not queued.trials:
        return None
    names = ", ".join(sorted(queued.submissions))
    plural = "s" if len(queued.submissions) > 1 else ""
    verb = "is" if len(queued.trials) == 1 else "are"
    count = f"{len(queued.trials)} of {format_count(len(of), 'trial')}"
    return f"{count} {verb} queued in submission{plural} {names} already"
