"""Calling work off: the workers of submissions, single trials of them, and runs on this machine."""

import os
import signal
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import final

from runners.monitoring.trial_states import TrialLocations
from runners.output import format_count, say
from runners.slurm.submissions import AT_WORK, SubmissionStatus
from runners.slurm.submit.submit_lock import submit_lock
from runners.slurm.worker_records import cancelled_path, read_cancelled
from store.files.atomic import write_json
from store.files.layout import FILE_SCHEMA, Layout
from store.files.trial_status import process_started, trial_state

Canceller = Callable[[Sequence[int]], str | None]
"""Takes jobs out of a scheduler's queue, or says why that was not possible."""


@final
class Cancelling:
    """Calls off trials of a campaign and says, a sentence each, what was done and what could not be."""

    def __init__(self, layout: Layout, where: TrialLocations, cancel: Canceller) -> None:
        self._layout = layout
        self._where = where
        self._cancel = cancel
        self.done: list[str] = []
        self.problems: list[str] = []

    def everything(self) -> None:
        """All submissions with workers that wait or work, and all runs on this machine."""
        for crew in self._where.crews:
            if _at_work(crew):
                self._whole(crew)
        self._local(None)

    def trials(self, keys: Collection[str]) -> None:
        """Trials alone; a submission that has none left is called off as a whole."""
        wanted = {key for key in keys if self._where.trials[key].state not in ("done", "failed")}
        for crew in self._where.crews:
            if _at_work(crew):
                self._some(crew, wanted)
        self._local(wanted)

    def _some(self, crew: SubmissionStatus, wanted: Collection[str]) -> None:
        submission = crew.record.submission
        members = self._members(submission)
        with submit_lock(self._layout, _waits):
            found = read_cancelled(self._layout, submission)
            before = found.trials
            chosen = members & set(wanted) - before
            if found.all or not chosen:
                return
            left = {key for key in members - before - chosen if self._where.trials[key].state not in ("done", "failed")}
            if left:
                self._write(submission, everything=False, trials=before | chosen)
        if left:
            verbs = "is" if len(chosen) == 1 else "are", "goes" if len(left) == 1 else "go"
            self.done.append(
                f"{format_count(len(chosen), 'trial')} of submission {submission} {verbs[0]} called off; {len(left)} "
                f"{verbs[1]} on"
            )
        else:
            self._whole(crew)

    def _members(self, submission: str) -> set[str]:
        from runners.attempts.manifest import Manifest

        manifest = Manifest(self._layout, submission)
        keys = (str(manifest.line(row)["trial"]) for row in range(len(manifest)))
        return {key for key in keys if key in self._where.trials}

    def _whole(self, crew: SubmissionStatus) -> None:
        """First the file, which keeps workers from being queued again; then the queue."""
        submission = crew.record.submission
        with submit_lock(self._layout, _waits):
            self._write(submission, everything=True, trials=read_cancelled(self._layout, submission).trials)
        jobs = sorted({int(job.partition("_")[0]) for job in crew.jobs})
        problem = self._cancel(jobs) if jobs else None
        workers = format_count(len(crew.jobs), "worker")
        leave = "leaves" if len(crew.jobs) == 1 else "leave"
        if problem is None:
            self.done.append(
                f"submission {submission} is called off: {workers} {leave}, running trials save their state"
            )
        else:
            self.problems.append(
                f"submission {submission} is called off in its files, where workers look as they begin and every few "
                f"seconds; the queue could not be told ({problem}): `scancel {' '.join(map(str, jobs))}` does that"
            )

    def _write(self, submission: str, *, everything: bool, trials: Collection[str]) -> None:
        write_json(
            cancelled_path(self._layout, submission),
            {"schema": FILE_SCHEMA, "all": everything, "trials": sorted(trials)},
        )

    def _local(self, wanted: Collection[str] | None) -> None:
        """Runs without a scheduler that train any of `wanted`, or anything."""
        crews = {crew.record.submission for crew in self._where.crews}
        runs: dict[str, Mapping[str, object]] = {}
        chosen: dict[str, int] = {}
        for run in self._where.runs:  # also one that has not begun a trial
            runs[run.submission] = {"host": run.host, "pid": run.pid, "pid_started": run.pid_started}
            chosen[run.submission] = (
                len(self._members(run.submission).intersection(wanted)) if wanted is not None else 1
            )
        for key in self._where.of("running"):
            live = trial_state(self._layout, key).live
            if live is None or live.start["submission"] in crews or live.start.get("place"):
                continue
            submission = str(live.start["submission"])
            runs.setdefault(submission, live.start)
            chosen[submission] = chosen.get(submission, 0) + (wanted is None or key in wanted)
        for submission, start in runs.items():
            if chosen[submission]:
                self._stop(submission, start, whole=wanted is None)

    def _stop(self, submission: str, start: Mapping[str, object], *, whole: bool) -> None:
        host, here = str(start["host"]), socket.gethostname()
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


def _at_work(crew: SubmissionStatus) -> bool:
    if crew.cancelled.all:
        return False
    return any(worker.standing in AT_WORK for worker in crew.workers)


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
