"""Trials that need not be queued, because workers of an earlier submission will take them."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import final

from grid.errors import EnvironmentProblem
from runners.crews import Crew, read_crews
from runners.manifest import Manifest
from runners.scheduler_news import Scheduler
from runners.submission import job_name
from runners.survey import Surveyed
from store.layout import Layout
from store.status import trial_state

_BY_NOW_S = 600.0
"""A submission that has not told its jobs for so long never will, also where nobody can lock files."""


@final
@dataclass
class Elsewhere:
    """What is queued already."""

    submissions: Counter[str] = field(default_factory=Counter)
    """Trials by the submission whose workers take them."""
    trials: set[str] = field(default_factory=set)
    """Their keys."""
    notes: list[str] = field(default_factory=list)


def queued_elsewhere(layout: Layout, wanted: Sequence[Surveyed], scheduler: Scheduler) -> Elsewhere:
    """Which of `wanted` workers of earlier submissions will take.

    Raises:
        EnvironmentProblem: the scheduler does not say.
    """
    crews, notes = read_crews(layout, scheduler)
    found = Elsewhere()
    by_key = {trial.key: trial for trial in wanted}
    for crew in crews:
        rows = _live_rows(crew, notes)
        manifest = Manifest(layout, crew.record.submission) if rows else None
        keys = (manifest.trial(row) for row in rows) if manifest is not None else ()
        taken = {key for key in keys if key in by_key and _takes(layout, crew, by_key[key])} - found.trials
        if taken:
            found.submissions[crew.record.submission] = len(taken)
            found.trials |= taken
            found.notes.extend(_held(crew))
    return found


def _live_rows(crew: Crew, notes: Sequence[str]) -> list[int]:
    rows: list[int] = []
    for found in crew.record.classes:
        standing = crew.standing(found.name)
        if standing == "unknown":
            why = f" ({'; '.join(notes)})" if notes else ""
            raise EnvironmentProblem(
                f"whether submission {crew.record.submission} still has workers is not known{why}, so trials could "
                "be queued twice; try again when the controller answers"
            )
        if standing == "live":
            rows.extend(range(*found.rows))
    return rows


def _takes(layout: Layout, crew: Crew, trial: Surveyed) -> bool:
    """Whether a worker of the crew would train it."""
    if trial.key in crew.cancelled.trials:
        return False
    if trial.status == "ok":
        return bool(crew.record.job["again"])
    if trial.status != "failed":
        return True
    latest = trial_state(layout, trial.key).attempts[-1]
    return bool(crew.record.job["retry"]) and latest.start.get("submission") != crew.record.submission


def _held(crew: Crew) -> list[str]:
    jobs = sorted({worker.job for worker in crew.workers if worker.job and "JobHeldUser" in worker.words})
    if not jobs:
        return []
    return [f"jobs of submission {crew.record.submission} are held: scontrol release {' '.join(jobs)}"]


def half_submitted(layout: Layout, *, certain: bool, cancel: Callable[[str], None]) -> list[str]:
    """Take back submissions whose shell died before it knew all its jobs; what was done, in words.

    `certain`: no other shell is at it now. `cancel` cancels the jobs of a name.
    """
    from runners.submission import read_submission_record

    done = []
    for submission in layout.submission_ids():
        if not layout.submission_record(submission).is_file():
            continue
        record = read_submission_record(layout, submission)
        unknown = any(array.job is None for each in record.classes for array in each.arrays)
        begun = (layout.submission(submission) / "workers").exists()  # jobs are held until all are known
        if (
            begun
            or record.machine != "slurm"
            or not unknown
            or not (certain or time.time() - record.written > _BY_NOW_S)
        ):
            continue
        cancel(job_name(submission))
        shutil.rmtree(layout.submission(submission))
        done.append(f"submission {submission} was cut off before its jobs were known; it is taken back")
    return done


def told(found: Elsewhere, of: Collection[Surveyed]) -> str | None:
    """What is queued already, in words."""
    if not found.trials:
        return None
    names = ", ".join(sorted(found.submissions))
    count = "all" if len(found.trials) == len(of) else f"{len(found.trials)} of"
    plural = "s" if len(found.submissions) > 1 else ""
    return f"{count} {len(of)} trials are queued in submission{plural} {names} already"
