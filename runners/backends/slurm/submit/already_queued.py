"""Trials that workers of earlier submissions will take."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from ablate.grid.errors import EnvironmentProblem, StoreError
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.backends.backend import Submissions, SubmissionStatus, outdated_words
from ablate.runners.backends.slurm.queue import SlurmQueue
from ablate.runners.backends.slurm.scheduler import Scheduler
from ablate.runners.output import format_count
from ablate.runners.planning.worklist import GridTrial
from ablate.store.files.layout import Layout
from ablate.store.files.plans import read_plan
from ablate.store.files.trial_state import trial_state
from ablate.store.state import ENDED, State


@final
@dataclass
class AlreadyQueued:
    """Trials that are queued already."""

    submissions: Counter[str] = field(default_factory=Counter)
    """Trials by the submission whose workers take them."""
    trials: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def queued_elsewhere(
    layout: Layout, wanted: Sequence[GridTrial], scheduler: Scheduler, planned: Mapping[str, Collection[str]]
) -> AlreadyQueued:
    """Find the `wanted` trials that workers of earlier submissions will take; `planned` maps a grid to its keys.

    Raises EnvironmentProblem if the scheduler does not answer.
    """
    statuses, notes = Submissions({"slurm": SlurmQueue(scheduler)}).list(layout)
    queued = AlreadyQueued(notes=list(notes))
    by_key = {trial.key: trial for trial in wanted}
    for status in statuses:
        submission = status.record.submission
        rows = _live_rows(status, notes)
        try:
            manifest = Manifest(layout, submission) if rows else None
            keys = [manifest.trial(row) for row in rows] if manifest is not None else []
            outdated = _count_outdated(layout, manifest, rows, planned) if manifest is not None else 0
        except StoreError as error:  # its workers cannot read it either; a trial that is queued twice is trained once
            queued.notes.append(f"which trials submission {submission} has queued is not known: {error}")
            continue
        taken = {key for key in keys if key in by_key and _takes(layout, status, by_key[key])} - queued.trials
        if taken:
            queued.submissions[submission] = len(taken)
            queued.trials |= taken
        if outdated:
            queued.notes.append(
                f"{format_count(outdated, 'trial')} of submission {submission} that {'is' if outdated == 1 else 'are'} "
                "queued or running left the grid when the plan changed; `ablate cancel --outdated` cancels them"
            )
        if status.held is not None:
            queued.notes.append(status.held)
    if finished := _count_finished_outdated(layout, planned):
        queued.notes.append(f"{outdated_words(finished, 'finished')}; no table shows these results")
    return queued


def _count_finished_outdated(layout: Layout, planned: Mapping[str, Collection[str]]) -> int:
    """Count finished trials that are in none of the grids `planned`, nor in another grid; 0 if its plan is damaged."""
    keys = set(layout.trial_keys()).difference(*planned.values())
    for name in (set(layout.planned_grids()) - planned.keys()) if keys else ():
        plan = read_plan(layout, f"grids/{name}")
        if plan.problems:
            return 0
        keys -= {line["trial"] for line in plan.lines}
    return sum(trial_state(layout, key).state == State.DONE for key in keys)


def _count_outdated(
    layout: Layout, manifest: Manifest, rows: Sequence[int], planned: Mapping[str, Collection[str]]
) -> int:
    """Count the unfinished trials of `rows` that their grid, if it is among `planned`, does not have any more."""
    known = {key for keys in planned.values() for key in keys}
    strays = [manifest.line(row) for row in rows if manifest.trial(row) not in known]
    return sum(line["grid"] in planned and trial_state(layout, line["trial"]).state not in ENDED for line in strays)


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
        if standing in ("live", "unknown"):
            rows.extend(range(*each.rows))
    return rows


def _takes(layout: Layout, status: SubmissionStatus, trial: GridTrial) -> bool:
    """Return True if a worker of the submission would train it."""
    if trial.key in status.cancelled.trials:
        return False
    if status.spent:
        live = trial_state(layout, trial.key).live
        return live is not None and live.start.get("submission") == status.record.submission
    if trial.state == State.DONE:
        return bool(status.record.job.get("again"))
    if trial.state != State.FAILED:
        return True
    latest = trial_state(layout, trial.key).attempts[-1]
    return bool(status.record.job.get("retry")) and latest.start.get("submission") != status.record.submission


def describe_already_queued(queued: AlreadyQueued, of: Collection[GridTrial]) -> str | None:
    """Describe in a sentence which of the trials are queued already."""
    if not queued.trials:
        return None
    names = ", ".join(sorted(queued.submissions))
    plural = "s" if len(queued.submissions) > 1 else ""
    verb = "is" if len(queued.trials) == 1 else "are"
    return (
        f"{len(queued.trials)} of {format_count(len(of), 'trial')} {verb} queued in submission{plural} {names} already"
    )
