"""What a worker task says of itself: its record, kept up to date, and a line per event on stdout."""

import os
import socket
import sys
import time
from dataclasses import replace
from typing import final

from grid.errors import EnvironmentProblem
from runners.attempts.attempt import require_there
from runners.attempts.worker import Outcome
from runners.slurm.worker.assignment import Assignment
from runners.slurm.worker_records import MOST_FINGERPRINTS, Left, WorkerRecord, write_worker

_EVERY_S = 60.0


@final
class WorkerRecordFile:
    """The record of a task that begins now.

    A record that cannot be written is told once and tried again: nothing that counts is in it.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._layout = assignment.layout
        self._began = time.monotonic()
        self._due = self._began
        self._unwritten = False
        now = time.time()
        self.record = WorkerRecord(
            submission=assignment.task.submission,
            resource_class=assignment.task.resource_class,
            worker=assignment.worker,
            restarts=assignment.place.restarts,
            job=assignment.place.job,
            node=assignment.place.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=now,
            touched=now,
            seconds=0.0,
            gpus=assignment.resources.gpus,
            slots=1,
            cpus=assignment.resources.cpus,
        )

    def keep(self) -> None:
        """Write the record, if the last time is long enough ago."""
        if time.monotonic() >= self._due:
            self._write()

    def has_slots(self, slots: int) -> None:
        """So many trials are trained side by side from now on."""
        self.record = replace(self.record, slots=slots)

    def count(self, outcome: Outcome) -> None:
        """A row came back."""
        if outcome.status in ("ok", "failed", "stopped"):
            name = outcome.status
            self.record = replace(self.record, **{name: getattr(self.record, name) + 1})
        met = self.record.failures
        if outcome.failure is not None and outcome.failure.fingerprint not in met and len(met) < MOST_FINGERPRINTS:
            self.record = replace(self.record, failures=(*met, outcome.failure.fingerprint))

    def close(self, left: Left, says: str | None = None) -> None:
        """Say why the task leaves."""
        self.record = replace(self.record, left=left, says=says)
        self._write()
        found = self.record
        counts = f"{found.ok} ok, {found.failed} failed, {found.stopped} stopped"
        self.tell(f"leaves: {left}; {counts}" + (f"; {says}" if says else ""))

    def tell(self, text: str) -> None:
        """A line for people."""
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        sys.stdout.flush()

    def _write(self) -> None:
        self._due = time.monotonic() + _EVERY_S
        seconds = round(time.monotonic() - self._began, 3)
        self.record = replace(self.record, touched=time.time(), seconds=seconds)
        try:
            require_there(self._layout.submission_record(self.record.submission))
            write_worker(self._layout, self.record)
            self._unwritten = False
        except EnvironmentProblem as error:
            if not self._unwritten:
                self.tell(str(error))
            self._unwritten = True
