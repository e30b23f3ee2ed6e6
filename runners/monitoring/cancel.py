"""Cancels work: the workers of submissions, single trials of them, and runs on this machine."""

import os
import signal
import socket
from collections import Counter
from collections.abc import Collection, Sequence
from typing import final

from ablate.grid.errors import NotFoundError
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.submission_record import Submission
from ablate.runners.attempts.submit_lock import submit_lock
from ablate.runners.attempts.worker_records import CalledOff, open_submissions, read_cancelled, write_cancelled
from ablate.runners.backends.backend import AT_WORK, Submissions, SubmissionStatus
from ablate.runners.monitoring.trial_locations import TrialLocations
from ablate.runners.output import format_count, say
from ablate.store.files.layout import Layout
from ablate.store.state import ENDED

_SHOWN = 8


def mark_cancelled(layout: Layout, ids: Collection[str] = ()) -> list[str]:
    """Write `cancelled.json` of the submissions `ids`, by default of all that may be at work; return the ids.

    No scheduler is asked: workers read the file before they take a trial, and every few seconds.
    """
    marked = [name for name in open_submissions(layout) if not ids or name in ids]
    for name in marked:
        _cancel_whole(layout, name)
    return marked


def _cancel_whole(layout: Layout, submission: str) -> None:
    with submit_lock(layout, _report_wait):
        write_cancelled(layout, submission, CalledOff(all=True, trials=read_cancelled(layout, submission).trials))


_FATES = {
    "running": ("running worker", "trials of {} save their state"),
    "queued": ("waiting worker", "{} left the queue"),
    "unknown": ("worker", "{} may be at work and will see it"),
}
"""The workers of a cancelled submission by standing: noun, and what becomes of them."""


def _describe_workers(status: SubmissionStatus) -> str:
    counts = Counter[str]("queued" if each.standing == "held" else each.standing for each in status.workers)
    parts = [text.format(format_count(counts[name], noun)) for name, (noun, text) in _FATES.items() if counts[name]]
    return f": {', '.join(parts)}" if parts else ""


def _report_wait(why: str) -> None:
    say(f"ablate: {why}")


@final
class Cancelling:
    """Cancels trials of a campaign; `done` and `problems` are sentences about it."""

    def __init__(
        self,
        layout: Layout,
        submissions: Sequence[SubmissionStatus],
        runs: Sequence[Submission],
        backend: Submissions,
        marked: Collection[str] = (),
    ) -> None:
        """`runs` are those without a scheduler that are at work, on any host. `marked` is from `mark_cancelled`."""
        self._layout, self._runs = layout, runs
        self._backend, self._marked = backend, marked
        self._known = [*(status.record.submission for status in submissions), *(run.submission for run in runs)]
        self._at_work = [
            status
            for status in submissions
            if (not status.cancelled.all or status.record.submission in marked)
            and any(worker.standing in AT_WORK for worker in status.workers)
        ]
        self.done: list[str] = []
        self.problems: list[str] = []

    def cancel_submissions(self, ids: Collection[str] = ()) -> None:
        """Cancel the submissions and runs with these ids; without ids, all that are at work. Needs no store.

        Raises NotFoundError if there is no such submission.
        """
        for name in ids:
            if name not in self._known:
                there = ", ".join(self._known[-_SHOWN:]) or "none"
                raise NotFoundError(f"no submission {name!r} is queued or running; the latest are {there}")
        for status in self._at_work:
            if not ids or status.record.submission in ids:
                self._whole(status)
        for run in self._runs:
            if not ids or run.submission in ids:
                self._stop(run)

    def trials(self, keys: Collection[str], where: TrialLocations) -> None:
        """Cancel single trials; a submission that has none left is cancelled as a whole."""
        open_keys = {key for key, place in where.trials.items() if place.state not in ENDED}
        wanted = open_keys.intersection(keys)
        for status in self._at_work:
            self._some(status, wanted, open_keys)
        for run in self._runs:
            if wanted & self._members(run.submission):
                self.problems.append(
                    f"run {run.submission} trains some of these on {run.host} and can only be stopped as a whole: "
                    "`ablate cancel`"
                )

    def _some(self, status: SubmissionStatus, wanted: set[str], open_keys: set[str]) -> None:
        submission = status.record.submission
        members = self._members(submission)
        with submit_lock(self._layout, _report_wait):
            before = read_cancelled(self._layout, submission)
            chosen = members & wanted - before.trials
            if before.all or not chosen:
                return
            left = members & open_keys - before.trials - chosen
            if left:
                write_cancelled(self._layout, submission, CalledOff(trials=before.trials | chosen))
        if left:
            count = format_count(len(chosen), "trial")
            self.done.append(f"cancelled: {count} of submission {submission}; {len(left)} left in it")
        else:
            self._whole(status)

    def _members(self, submission: str) -> set[str]:
        manifest = Manifest(self._layout, submission)
        return {manifest.trial(row) for row in range(len(manifest))}

    def _whole(self, status: SubmissionStatus) -> None:
        """Write the file first, which keeps workers from being queued again; then clear the queue."""
        submission = status.record.submission
        if submission not in self._marked:
            _cancel_whole(self._layout, submission)
        problem = self._backend.cancel(status)
        if problem is None:
            self.done.append(f"submission {submission} is cancelled{_describe_workers(status)}")
        else:
            self.problems.append(
                f"submission {submission} is cancelled in its files, where workers look as they begin and every few "
                f"seconds; the queue could not be told: {problem}"
            )

    def _stop(self, run: Submission) -> None:
        submission, host, here = run.submission, run.host, socket.gethostname()
        if host != here:
            self.problems.append(
                f"run {submission} is on {host} and this is {here}; press Ctrl-C there, or cancel there"
            )
        elif (pid := run.process) is None:
            self.problems.append(f"run {submission} has ended by itself")
        else:
            os.kill(pid, signal.SIGTERM)
            self.done.append(f"run {submission} (process {pid}) was asked to stop; running trials save their state")
