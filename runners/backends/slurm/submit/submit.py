"""Submit a campaign's missing trials to SLURM: check everything first, then queue all jobs or none.

The record of the submission is written before the first job, and again with the number of each job. If this process is
killed in between, later commands find the job by its name, which has the id of the submission.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from ablate.runners.attempts.manifest import write_grid, write_submission
from ablate.runners.attempts.submission_record import Submission, new_record, write_submission_record
from ablate.runners.attempts.submit_lock import submit_lock
from ablate.runners.attempts.unreadable_results import mark_unreadable
from ablate.runners.attempts.worker_logs import logs
from ablate.runners.attempts.worker_records import CalledOff, write_cancelled
from ablate.runners.backends.slurm.scheduler import ask, user
from ablate.runners.backends.slurm.submit.draft import Draft, Drafter
from ablate.runners.provenance.code_snapshot import write
from ablate.store.files.atomic import make_directory
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust_new
from ablate.store.state import State


class SubmittedJobs(NamedTuple):
    """The result of `submit`."""

    draft: Draft
    record: Submission | None
    done: int


def submit(drafter: Drafter, notify: Callable[[str], None]) -> SubmittedJobs:
    """Queue the missing trials. A lock admits one shell at a time; the second finds everything queued.

    Raises SpecError or EnvironmentProblem if the submission is refused; its jobs are then cancelled.
    """
    drafter.draft()  # report errors before anything is written
    trust_new(drafter.layout)
    with submit_lock(drafter.layout, notify):
        draft = drafter.draft()
        mark_unreadable(drafter.layout, drafter.prepared.unreadable)
        for grid in drafter.grids:  # a grid of finished trials is recorded, too
            write_grid(drafter.layout, grid, drafter.lines[grid.name])
        done = sum(trial.state == State.DONE for trial in drafter.worklist.trials)
        return SubmittedJobs(draft, _queue(drafter, draft, notify) if draft.groups else None, done)


def _queue(drafter: Drafter, draft: Draft, notify: Callable[[str], None]) -> Submission:
    layout = drafter.layout
    record = _new_record(drafter, draft)
    try:
        lines = chain.from_iterable(drafter.worklist.lines(group.trials) for group in draft.groups)
        write_submission(layout, draft.submission, lines)
        if drafter.packed is not None:
            write(layout, drafter.packed)
        write_submission_record(layout, record)
        make_directory(logs(layout, draft.submission))
        arrays = drafter.arrays(draft.submission)
        for script in draft.scripts.values():
            record = record.with_next_job(arrays.queue(script))
            write_submission_record(layout, record)
    except BaseException:
        _take_back(layout, record, notify)
        raise
    return record


def _take_back(layout: Layout, record: Submission, notify: Callable[[str], None]) -> None:
    """Cancel a submission of which not all jobs were queued, also a job whose number is unknown.

    Workers that begin leave at once. The files stay if a worker has begun, or if SLURM does not answer.
    """
    folder = layout.submission(record.submission)
    if not folder.exists():
        return
    write_cancelled(layout, record.submission, CalledOff(all=True))
    said = ask("scancel", f"--name={record.job_name}", f"--user={user()}")
    if said.problem is not None:
        notify(f"{said.problem}; jobs called {record.job_name} may be queued, and train nothing when they begin")
    elif not (folder / "workers").exists():
        shutil.rmtree(folder, ignore_errors=True)


def _new_record(drafter: Drafter, draft: Draft) -> Submission:
    """Return the record of the request; excluded nodes of this submission are only in the scripts."""
    slurm = drafter.asked
    job = replace(drafter.request, submission=draft.submission)
    record = new_record(job, "slurm", drafter.packed.snapshot if drafter.packed else None)
    return replace(
        record,
        slurm=slurm.data(),
        environment=None if slurm.python else record.environment,  # that of another Python is unknown
        classes=draft.classes,
        scripts=draft.scripts,
    )
