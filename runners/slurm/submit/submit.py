"""Submit a campaign's missing trials to SLURM: check everything first, then queue all jobs or none.

Jobs are queued held and released together, after the record of the submission has all their numbers. An error before
the release cancels them and removes the submission.
"""

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.manifest import write_grid, write_submission
from ablate.runners.attempts.submission_record import Submission, new_record, write_submission_record
from ablate.runners.attempts.unreadable_results import mark_unreadable
from ablate.runners.attempts.worker import WorkOrder
from ablate.runners.provenance.code_snapshot import write
from ablate.runners.slurm.scheduler import ask, release, user
from ablate.runners.slurm.submit.already_queued import half_submitted, let_go
from ablate.runners.slurm.submit.draft import Draft, Drafter, SubmitOptions
from ablate.runners.slurm.submit.submit_lock import submit_lock
from ablate.runners.slurm.worker_records import logs
from ablate.store.files.atomic import make_directory
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust_new

__all__ = ["Draft", "Drafter", "SubmitOptions", "SubmittedJobs", "submit"]


class SubmittedJobs(NamedTuple):
    """The result of `submit`."""

    draft: Draft
    record: Submission | None
    done: int


def submit(drafter: Drafter, notify: Callable[[str], None]) -> SubmittedJobs:
    """Queue the missing trials. A lock admits one shell at a time; the second finds everything queued.

    Raises SpecError or EnvironmentProblem if the submission is refused; nothing of it is left.
    """
    drafter.draft()  # report errors before anything is written
    trust_new(drafter.layout)
    with submit_lock(drafter.layout, notify):
        for remark in (*half_submitted(drafter.layout, _cancel_named), *let_go(drafter.layout, drafter.scheduler)):
            notify(remark)
        draft = drafter.make_draft()
        mark_unreadable(drafter.layout, drafter.unreadable)
        for grid in drafter.grids:  # a grid of finished trials is recorded, too
            write_grid(drafter.layout, grid, drafter.lines[grid.name])
        done = sum(trial.status == "ok" for trial in drafter.survey.trials)
        return SubmittedJobs(draft, _queue(drafter, draft) if draft.groups else None, done)


def _queue(drafter: Drafter, draft: Draft) -> Submission:
    layout = drafter.layout
    record = _new_record(drafter, draft)
    folder = layout.submission(draft.submission)
    jobs: list[int] = []
    try:
        lines = chain.from_iterable(drafter.survey.lines(group.trials) for group in draft.groups)
        write_submission(layout, draft.submission, lines)
        if drafter.packed is not None:
            write(layout, drafter.packed)
        write_submission_record(layout, record)
        make_directory(logs(layout, draft.submission))
        arrays = drafter.arrays(draft.submission)
        for script in draft.scripts.values():
            if jobs:  # show other shells that this one is alive
                record = _update(layout, record, written=time.time())
            jobs.append(arrays.submit_held(script))
        numbers = iter(jobs)
        classes = tuple(
            replace(each, arrays=tuple(replace(array, job=next(numbers)) for array in each.arrays))
            for each in record.classes
        )
        record = _update(layout, record, classes=classes)
        _release_all(layout, record)
    except BaseException:
        if jobs or folder.exists():
            _cancel_named(record.job_name)
            shutil.rmtree(folder, ignore_errors=True)
        raise
    record = replace(record, released=True)
    with contextlib.suppress(EnvironmentProblem):  # the jobs are queued; the next shell finds that none is held
        write_submission_record(layout, record)
    return record


def _update(layout: Layout, record: Submission, **fields: Any) -> Submission:
    record = replace(record, **fields)
    _require_manifest(layout, record)
    write_submission_record(layout, record)
    return record


def _require_manifest(layout: Layout, record: Submission) -> None:
    """Raise EnvironmentProblem if another shell removed the submission, because it took this one for dead."""
    if not layout.manifest(record.submission).exists():
        raise EnvironmentProblem(
            f"submission {record.submission} was taken back while it was being queued, by a shell on another host that "
            "took this one for dead, or by hand; the same command queues its trials anew"
        )


def _release_all(layout: Layout, record: Submission) -> None:
    _require_manifest(layout, record)
    for job in record.jobs:
        if not release(job):
            raise EnvironmentProblem(
                f"job {job} of submission {record.submission} was cancelled while it was being queued; the same "
                "command queues its trials anew"
            )


def _new_record(drafter: Drafter, draft: Draft) -> Submission:
    """Return the record of the request; excluded nodes of this submission are only in the scripts."""
    options, slurm = drafter.options, drafter.asked
    job = WorkOrder(
        drafter.layout.root,
        draft.submission,
        options.entry,
        files=tuple(Path(file).resolve() for file in options.files),
        retry=options.retry,
        again=options.again,
        heartbeat_s=slurm.heartbeat_s,
        oom=slurm.oom,
    )
    record = new_record(job, "slurm", drafter.packed.snapshot if drafter.packed else None)
    return replace(
        record,
        slurm=slurm.data(),
        environment=None if slurm.python else record.environment,  # that of another Python is unknown
        budget=options.budget,
        classes=draft.classes,
        scripts=draft.scripts,
        released=False,
    )


def _cancel_named(name: str) -> None:
    """Cancel all jobs with that name, also those whose numbers are unknown."""
    said = ask("scancel", f"--name={name}", f"--user={user()}")
    if said.problem is not None:
        raise EnvironmentProblem(
            f"jobs called {name} may be queued, held, and were not cancelled ({said.problem}); "
            f"later, scancel --name={name} does it"
        )
