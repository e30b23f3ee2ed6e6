"""Trials that need not be queued, because workers of an earlier submission will take them."""

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
from runners.attempts.submission_record import Submission, job_name, submission_records, write_submission_record
from runners.output import counted
from runners.planning.survey import Surveyed
from runners.slurm.cancellations import read_cancelled
from runners.slurm.scheduler import Scheduler
from runners.slurm.submissions import SubmissionStatus, read_submission_status
from store.files.layout import Layout
from store.files.trial_status import local_process, trial_state

_BY_NOW_S = 600.0
"""A submission of which nothing was written for so long is at rest, also where nobody can lock files."""

_SURELY_S = 180.0
"""The same where they lock, since a file system may lock files for each host alone: longer than one sbatch may take,
before each of which the record is written anew."""


@final
@dataclass
class AlreadyQueued:
    """What is queued already."""

    submissions: Counter[str] = field(default_factory=Counter)
    """Trials by the submission whose workers take them."""
    trials: set[str] = field(default_factory=set)
    """Their keys."""
    notes: list[str] = field(default_factory=list)


def queued_elsewhere(layout: Layout, wanted: Sequence[Surveyed], scheduler: Scheduler) -> AlreadyQueued:
    """Which of `wanted` workers of earlier submissions will take.

    Raises:
        EnvironmentProblem: the scheduler does not say.
    """
    crews, notes = read_submission_status(layout, scheduler)
    found = AlreadyQueued(notes=list(notes))
    by_key = {trial.key: trial for trial in wanted}
    for crew in crews:
        rows = _live_rows(crew, notes)
        try:
            manifest = Manifest(layout, crew.record.submission) if rows else None
            keys = [manifest.trial(row) for row in rows] if manifest is not None else []
        except StoreError as error:  # its workers cannot read it either, and what is queued twice is trained once
            found.notes.append(f"which trials submission {crew.record.submission} has queued is not known: {error}")
            continue
        taken = {key for key in keys if key in by_key and _takes(layout, crew, by_key[key])} - found.trials
        if taken:
            found.submissions[crew.record.submission] = len(taken)
            found.trials |= taken
        if crew.held is not None:
            found.notes.append(crew.held)
    return found


def _live_rows(crew: SubmissionStatus, notes: Sequence[str]) -> list[int]:
    rows: list[int] = []
    for found in crew.record.classes:
        standing = crew.standing(found.name)
        if standing == "unknown" and not crew.spent:
            why = f" ({'; '.join(notes)})" if notes else ""
            raise EnvironmentProblem(
                f"whether submission {crew.record.submission} still has workers is not known{why}, so trials could "
                "be queued twice; try again when the controller answers"
            )
        if standing in ("live", "unknown") or (standing == "held" and not crew.record.released):
            rows.extend(range(*found.rows))
    return rows


def _takes(layout: Layout, crew: SubmissionStatus, trial: Surveyed) -> bool:
    """Whether a worker of the crew would train it."""
    if trial.key in crew.cancelled.trials:
        return False
    if crew.spent:
        live = trial_state(layout, trial.key).live
        return live is not None and live.start.get("submission") == crew.record.submission
    if trial.status == "ok":
        return bool(crew.record.job.get("again"))
    if trial.status != "failed":
        return True
    latest = trial_state(layout, trial.key).attempts[-1]
    return bool(crew.record.job.get("retry")) and latest.start.get("submission") != crew.record.submission


def half_submitted(layout: Layout, *, certain: bool, cancel: Callable[[str], None]) -> list[str]:
    """Take back submissions whose shell died before it knew all its jobs; what was done, in words.

    `certain`: no other shell of this host is at it now, and none of another host where locks hold for all of them.
    `cancel` cancels the jobs of a name.

    Raises:
        EnvironmentProblem: a shell elsewhere may be at it still.
    """
    done = []
    for record in _records(layout):
        submission = record.submission
        begun = (layout.submission(submission) / "workers").exists()  # jobs are held until all are known
        if begun or not any(array.job is None for each in record.classes for array in each.arrays):
            continue
        wait_s = _still_s(record, certain=certain)
        if wait_s > 0:
            raise EnvironmentProblem(
                f"a shell on {record.host or 'another host'} is queueing submission {submission}, or was cut off; the "
                f"same command tells which in {math.ceil(wait_s)} s"
            )
        cancel(job_name(submission))
        shutil.rmtree(layout.submission(submission))
        done.append(f"submission {submission} was cut off before its jobs were known; it is taken back")
    return done


def _still_s(record: Submission, *, certain: bool) -> float:
    """For how many seconds the shell that queued it may still be at it."""
    here = local_process(vars(record))
    if here is False or (record.pid == os.getpid() and here):
        return 0.0
    return (_SURELY_S if certain else _BY_NOW_S) - (time.time() - record.written)


def let_go(layout: Layout, scheduler: Scheduler, release: Callable[[int], object]) -> list[str]:
    """Release jobs whose shell died when it knew them all and had not released them all; what was done, in words.

    Raises:
        EnvironmentProblem: the scheduler does not do it, or the campaign cannot be written.
    """
    done = []
    for record in _records(layout):
        known = all(array.job is not None for each in record.classes for array in each.arrays)
        if record.released or not known or _called_off(layout, record.submission):
            continue
        queue = scheduler.queued(record.jobs, ())
        if queue.asked is None:  # whether trials are queued already is asked next, and that it does not answer is told
            continue
        held = {name for name, task in queue.tasks.items() if task.state == "held" and "JobHeldUser" in task.words}
        jobs = sorted({int(name.partition("_")[0]) for name in held})
        for job in jobs:
            release(job)
        write_submission_record(layout, replace(record, released=True))
        if jobs:
            listed = " ".join(map(str, jobs))
            done.append(f"submission {record.submission} was cut off before its jobs were released; {listed} are now")
    return done


def _called_off(layout: Layout, submission: str) -> bool:
    """Whether all of it was, or may have been; who reads the crews is told where that cannot be read."""
    try:
        return read_cancelled(layout, submission).all
    except StoreError:
        return True


def _records(layout: Layout) -> Iterator[Submission]:
    """Of submissions to a cluster, as far as they can be read; `queued_elsewhere` tells of the others."""
    for record in submission_records(layout):
        if isinstance(record, Submission) and record.machine == "slurm":
            yield record


def told(found: AlreadyQueued, of: Collection[Surveyed]) -> str | None:
    """What of the trials that others are queued for is queued already, in words."""
    if not found.trials:
        return None
    names = ", ".join(sorted(found.submissions))
    plural = "s" if len(found.submissions) > 1 else ""
    verb = "is" if len(found.trials) == 1 else "are"
    return f"{len(found.trials)} of {counted(len(of), 'trial')} {verb} queued in submission{plural} {names} already"
