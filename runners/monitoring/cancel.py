"""Cancels work: the workers of submissions, single trials of them, and runs on this machine."""

import os
import signal
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import final

from grid.errors import NotFoundError
from runners.attempts.submission_record import Submission
from runners.monitoring.trial_locations import TrialLocations
from runners.output import format_count, say
from runners.slurm.submissions import AT_WORK, SubmissionStatus, open_submissions
from runners.slurm.submit.submit_lock import submit_lock
from runners.slurm.worker_records import cancelled_path, read_cancelled
from store.files.atomic import write_json
from store.files.layout import FILE_SCHEMA, Layout
from store.files.trial_status import process_started

Canceller = Callable[[Sequence[int]], str | None]
"""Takes jobs out of a scheduler's queue, or says why that was not possible."""

_SHOWN = 8
"""Most submissions that are named where one was meant."""


def mark_cancelled(layout: Layout, only: Collection[str] = ()) -> list[str]:
    """Write `cancelled.json` of every submission that may be at work, or of those of `only`; return their ids.

    This asks no scheduler: workers read the file before they take a trial, and every few seconds.
    """
    marked = [name for name in open_submissions(layout) if not only or name in only]
    for name in marked:
        with submit_lock(layout, _waits):
            _write(layout, name, everything=True, trials=read_cancelled(layout, name).trials)
    return marked


def _write(layout: Layout, submission: str, *, everything: bool, trials: Collection[str]) -> None:
    record = {"schema": FILE_SCHEMA, "all": everything, "trials": sorted(trials)}
    write_json(cancelled_path(layout, submission), record)


@final
class Cancelling:
    """Cancels trials of a campaign and says, a sentence each, what was done and what could not be."""

    def __init__(
        self,
        layout: Layout,
        submissions: Sequence[SubmissionStatus],
        runs: Sequence[Submission],
        cancel: Canceller,
        marked: Collection[str] = (),
    ) -> None:
        """`runs` are those without a scheduler that are at work, on any host. `marked` is from `mark_cancelled`."""
        self._layout = layout
        self._submissions = submissions
        self._runs = runs
        self._cancel = cancel
        self._marked = marked
        self.done: list[str] = []
        self.problems: list[str] = []

    def everything(self, only: Collection[str] = ()) -> None:
        """All submissions with workers that wait or work, and all runs; or `only` those of these ids. Needs no store.

        Raises:
            NotFoundError: there is no such submission.
        """
        known = [*(status.record.submission for status in self._submissions), *(run.submission for run in self._runs)]
        for name in only:
            if name not in known:
                there = ", ".join(known[-_SHOWN:]) or "none"
                raise NotFoundError(f"no submission {name!r} is queued or running; the latest are {there}")
        for status in self._submissions:
            if self._at_work(status) and (not only or status.record.submission in only):
                self._whole(status)
        for run in self._runs:
            if not only or run.submission in only:
                self._stop(run, whole=True)

    def trials(self, keys: Collection[str], where: TrialLocations) -> None:
        """Trials alone; a submission that has none left is cancelled as a whole."""
        states = {key: found.state for key, found in where.trials.items()}
        open_keys = {key for key, state in states.items() if state not in ("done", "failed")}
        wanted = open_keys.intersection(keys)
        for status in self._submissions:
            if self._at_work(status):
                self._some(status, wanted, open_keys)
        for run in self._runs:
            if wanted.intersection(self._members(run.submission)):
                self._stop(run, whole=False)

    def _some(self, status: SubmissionStatus, wanted: Collection[str], open_keys: Collection[str]) -> None:
        submission = status.record.submission
        members = self._members(submission)
        with submit_lock(self._layout, _waits):
            found = read_cancelled(self._layout, submission)
            before = found.trials
            chosen = members & set(wanted) - before
            if found.all or not chosen:
                return
            left = (members - before - chosen).intersection(open_keys)
            if left:
                _write(self._layout, submission, everything=False, trials=before | chosen)
        if left:
            verbs = "is" if len(chosen) == 1 else "are", "goes" if len(left) == 1 else "go"
            self.done.append(
                f"{format_count(len(chosen), 'trial')} of submission {submission} {verbs[0]} cancelled; {len(left)} "
                f"{verbs[1]} on"
            )
        else:
            self._whole(status)

    def _members(self, submission: str) -> set[str]:
        from runners.attempts.manifest import Manifest

        manifest = Manifest(self._layout, submission)
        return {manifest.trial(row) for row in range(len(manifest))}

    def _whole(self, status: SubmissionStatus) -> None:
        """First the file, which keeps workers from being queued again; then the queue."""
        submission = status.record.submission
        if submission not in self._marked:
            with submit_lock(self._layout, _waits):
                trials = read_cancelled(self._layout, submission).trials
                _write(self._layout, submission, everything=True, trials=trials)
        jobs = sorted({int(job.partition("_")[0]) for job in status.jobs})
        problem = self._cancel(jobs) if jobs else None
        workers = format_count(len(status.jobs), "worker")
        leave = "leaves" if len(status.jobs) == 1 else "leave"
        if problem is None:
            self.done.append(
                f"submission {submission} is cancelled: {workers} {leave}, running trials save their state"
            )
        else:
            self.problems.append(
                f"submission {submission} is cancelled in its files, where workers look as they begin and every few "
                f"seconds; the queue could not be told ({problem}): `scancel {' '.join(map(str, jobs))}` does that"
            )

    def _at_work(self, status: SubmissionStatus) -> bool:
        if status.cancelled.all and status.record.submission not in self._marked:
            return False
        return any(worker.standing in AT_WORK for worker in status.workers)

    def _stop(self, run: Submission, *, whole: bool) -> None:
        submission, host, here = run.submission, run.host, socket.gethostname()
        start = {"pid": run.pid, "pid_started": run.pid_started}
        if not whole:
            self.problems.append(
                f"run {submission} trains some of these on {host} and can only be stopped as a whole: `ablate cancel`"
            )
        elif host != here:
            self.problems.append(
                f"run {submission} is on {host} and this is {here}; press Ctrl-C there, or cancel there"
            )
        elif (pid := run_process(start)) is None:
            self.problems.append(f"run {submission} has ended by itself")
        else:
            os.kill(pid, signal.SIGTERM)
            self.done.append(f"run {submission} (process {pid}) was asked to stop; running trials save their state")


def _waits(why: str) -> None:
    say(f"ablate: {why}")


def run_process(start: Mapping[str, object]) -> int | None:
    """The process of the run on this host whose worker wrote `start`: the worker, or whoever started its fork server.

    None if the worker is gone.
    """
    pid = start["pid"]
    if not isinstance(pid, int) or process_started(pid) != start.get("pid_started"):
        return None
    server = _parent(pid)
    if server is None or not _is_server(server):
        return pid
    return _parent(server)


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(text[text.rindex(b")") + 1 :].split()[1])


def _is_server(pid: int) -> bool:
    try:
        return b"runners.execution.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
