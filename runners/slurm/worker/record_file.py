"""The record file and log of this worker task; `ablate.runners.slurm.worker_records` reads the records of all tasks."""

import os
import socket
import sys
import time
from dataclasses import replace
from typing import final

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.attempt import require_there
from ablate.runners.attempts.worker import Outcome
from ablate.runners.slurm.worker.assignment import Assignment
from ablate.runners.slurm.worker_records import MOST_FINGERPRINTS, Left, WorkerRecord, write_worker

_WRITE_EVERY_S = 60.0


@final
class WorkerRecordFile:
    """The record of a task that begins now; a record that cannot be written is reported once and tried again."""

    def __init__(self, assignment: Assignment) -> None:
        self._layout = assignment.layout
        self._began = self._due = time.monotonic()
        self._failed = False
        task, place, resources, now = assignment.task, assignment.place, assignment.resources, time.time()
        self.record = WorkerRecord(
            submission=task.submission,
            resource_class=task.resource_class,
            worker=assignment.worker,
            restarts=place.restarts,
            job=place.job,
            node=place.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=now,
            touched=now,
            seconds=0.0,
            gpus=resources.gpus * resources.nodes,
            slots=1,
            cpus=resources.cpus * resources.nodes,
        )

    def keep(self) -> None:
        if time.monotonic() >= self._due:
            self._write()

    def set_slots(self, slots: int) -> None:
        self.record = replace(self.record, slots=slots)

    def count(self, outcome: Outcome) -> None:
        if outcome.status in ("ok", "failed", "stopped"):
            count = getattr(self.record, outcome.status) + 1
            self.record = replace(self.record, **{outcome.status: count})
        if outcome.failure is not None:
            failures = dict.fromkeys((*self.record.failures, outcome.failure.fingerprint))
            self.record = replace(self.record, failures=tuple(failures)[:MOST_FINGERPRINTS])

    def close(self, left: Left, says: str | None = None) -> None:
        self.record = replace(self.record, left=left, says=says)
        self._write()
        record = self.record
        counts = f"{record.ok} ok, {record.failed} failed, {record.stopped} stopped"
        self.log(f"leaves: {left}; {counts}" + (f"; {says}" if says else ""))

    def log(self, text: str) -> None:
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        sys.stdout.flush()

    def _write(self) -> None:
        self._due = time.monotonic() + _WRITE_EVERY_S
        seconds = round(time.monotonic() - self._began, 3)
        self.record = replace(self.record, touched=time.time(), seconds=seconds)
        try:
            require_there(self._layout.manifest(self.record.submission))
            write_worker(self._layout, self.record)
            self._failed = False
        except EnvironmentProblem as error:
            if not self._failed:
                self.log(str(error))
            self._failed = True
