"""Submitting a campaign's missing trials to SLURM: all that can be wrong is looked for first, then all of it is queued.

Jobs are queued held and released together, so until the record of a submission knows all of its jobs, none has begun;
whatever goes wrong before takes back what there is.
"""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from grid.errors import EnvironmentProblem
from runners.attempts.manifest import write_grid, write_submission
from runners.attempts.submission_record import Submission, job_data, job_name, write_submission_record
from runners.attempts.worker import Job
from runners.provenance.environment import record
from runners.provenance.snapshot import write
from runners.provenance.snapshot_modules import user_imports
from runners.slurm.queue import TaskId, ask, release, user
from runners.slurm.submit.already_queued import half_submitted, let_go
from runners.slurm.submit.draft import Draft, Drafter, SubmitOptions
from runners.slurm.submit.submit_lock import submit_lock
from runners.slurm.task_output import logs
from store.files.atomic import make_directory
from store.files.layout import Layout
from store.files.trial_status import pid_space, process_started

__all__ = ["Draft", "Drafter", "SubmitOptions", "SubmittedJobs", "submit"]


class SubmittedJobs(NamedTuple):
    """What was queued."""

    draft: Draft
    record: Submission | None
    """None: nothing is left to queue."""
    done: int
    """Trials that were ok before."""


def submit(drafter: Drafter, told: Callable[[str], None]) -> SubmittedJobs:
    """Queue what is missing. One shell at a time; of two, the second finds everything queued.

    Raises:
        SpecError, EnvironmentProblem: it was refused, and nothing of it is left.
    """
    drafter.draft()  # what is wrong is said before the campaign is touched
    with submit_lock(drafter.layout, told) as certain:
        for remark in half_submitted(drafter.layout, certain=certain, cancel=_cancel_named):
            told(remark)
        for remark in let_go(drafter.layout, drafter.scheduler, lambda job: release(TaskId(job))):
            told(remark)
        draft = drafter.drafted()
        for grid in drafter.grids:  # also where nothing is left to queue: a grid of finished trials is one
            write_grid(drafter.layout, grid, drafter.lines.of(grid.name))
        done = sum(trial.status == "ok" for trial in drafter.survey.trials)
        return SubmittedJobs(draft, _queue(drafter, draft) if draft.groups else None, done)


def _queue(drafter: Drafter, draft: Draft) -> Submission:
    layout = drafter.layout
    found = _record(drafter, draft)
    place = layout.submission(draft.submission)
    jobs: list[int] = []
    try:
        _write(drafter, draft, found)
        made = drafter.arrays(draft.submission)
        for script in draft.scripts:
            if jobs:
                found = _still_there(layout, replace(found, written=time.time()))
            jobs.append(made.submit_held(script.text))
        known = iter(jobs)
        classes = tuple(
            replace(each, arrays=tuple(replace(array, job=next(known)) for array in each.arrays))
            for each in found.classes
        )
        found = _still_there(layout, replace(found, classes=classes))
        _let_go(layout, found)
    except BaseException:
        if jobs or place.exists():
            _cancel_named(job_name(draft.submission))
            shutil.rmtree(place, ignore_errors=True)
        raise
    found = replace(found, released=True)
    with contextlib.suppress(EnvironmentProblem):  # they are queued; who comes next finds that none of them is held
        write_submission_record(layout, found)
    return found


def _still_there(layout: Layout, found: Submission) -> Submission:
    """Write the record anew, unless the submission was taken back: by a shell that took this one for dead.

    Raises:
        EnvironmentProblem: it was.
    """
    _require_manifest(layout, found)
    write_submission_record(layout, found)
    return found


def _require_manifest(layout: Layout, found: Submission) -> None:
    if not layout.manifest(found.submission).exists():
        raise EnvironmentProblem(
            f"submission {found.submission} was taken back while it was being queued, by a shell on another host that "
            "took this one for dead, or by hand; the same command queues its trials anew"
        )


def _let_go(layout: Layout, found: Submission) -> None:
    """Release all of its jobs; whoever has taken the submission back has cancelled them before."""
    _require_manifest(layout, found)
    for job in found.jobs:
        if not release(TaskId(job)):
            raise EnvironmentProblem(
                f"job {job} of submission {found.submission} was cancelled while it was being queued; the same command "
                "queues its trials anew"
            )


def _record(drafter: Drafter, draft: Draft) -> Submission:
    """What was asked; nodes that are avoided this time are in the scripts alone."""
    options, slurm = drafter.options, drafter.asked
    job = Job(
        drafter.layout.root,
        draft.submission,
        options.entry,
        files=tuple(Path(file).resolve() for file in options.files),
        retry=options.retry,
        again=options.again,
        modules=drafter.survey.cells.codes.modules,
        heartbeat_s=slurm.heartbeat_s,
        oom=slurm.oom,
    )
    snapshot = drafter.packed.snapshot.data() if drafter.packed else None
    unit = options.budget.unit.lower().replace("-", "") if options.budget else None
    return Submission(
        submission=draft.submission,
        machine="slurm",
        written=time.time(),
        job=job_data(job, snapshot),
        slurm=slurm.data(),
        snapshot=snapshot,
        environment=record(user_imports()),
        budget={"hours": options.budget.hours, "unit": unit} if options.budget else None,
        classes=draft.classes,
        scripts=dict(draft.scripts),
        released=False,
        host=socket.gethostname(),
        pid=os.getpid(),
        pid_started=process_started(os.getpid()),
        pid_space=pid_space(),
    )


def _write(drafter: Drafter, draft: Draft, found: Submission) -> None:
    layout = drafter.layout
    lines = chain.from_iterable(drafter.survey.lines(group.trials) for group in draft.groups)
    write_submission(layout, draft.submission, lines)
    if drafter.packed is not None:
        write(layout, drafter.packed)
    make_directory(logs(layout, draft.submission))
    write_submission_record(layout, found)


def _cancel_named(name: str) -> None:
    """Cancel the jobs called so, whether or not their numbers are known."""
    said = ask("scancel", f"--name={name}", f"--user={user()}")
    if said.problem is not None:
        raise EnvironmentProblem(
            f"jobs called {name} may be queued, held, and were not cancelled ({said.problem}); "
            f"later, scancel --name={name} does it"
        )
