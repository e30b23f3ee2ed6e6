"""The record and the log of this worker task; `ablate.runners.attempts.worker_records` reads those of all tasks."""

import os
import socket
import sys
import time
from typing import final

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.attempt import require_there
from ablate.runners.attempts.worker import Outcome
from ablate.runners.attempts.worker_records import MOST_FINGERPRINTS, Left, WorkerRecord, write_worker
from ablate.runners.backends.slurm.worker.assignment import Assignment
from ablate.store.state import State

_WRITE_EVERY_S = 60.0


_COUNTED = {State.DONE: "ok", State.FAILED: "failed", State.STOPPED: "stopped"}
"""The field of a worker's record that counts trials which ended so."""


@final
class WorkerRecordFile:
    """The record of a task that begins now; if it cannot be written, the log says so, and it is tried again."""

    def __init__(self, assignment: Assignment) -> None:
        self._layout = assignment.layout
        self._began = self._due = time.monotonic()
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
            slots=len(assignment.devices),
            cpus=resources.cpus * resources.nodes,
        )

    def keep(self) -> None:
        if time.monotonic() >= self._due:
            self._write()

    def count(self, outcome: Outcome) -> None:
        record = self.record
        field = _COUNTED.get(outcome.state)
        if field and (outcome.attempt is not None or outcome.failure):
            setattr(record, field, getattr(record, field) + 1)
        if outcome.failure is not None:
            failures = dict.fromkeys((*record.failures, outcome.failure.fingerprint))
            record.failures = tuple(failures)[:MOST_FINGERPRINTS]

    def close(self, left: Left, says: str | None = None) -> None:
        record = self.record
        record.left, record.says = left, says
        self._write()
        counts = f"{record.ok} ok, {record.failed} failed, {record.stopped} stopped"
        self.log(f"leaves: {left}; {counts}" + (f"; {says}" if says else ""))

    def log(self, text: str) -> None:
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        sys.stdout.flush()

    def _write(self) -> None:
        self._due = time.monotonic() + _WRITE_EVERY_S
        self.record.touched, self.record.seconds = time.time(), round(time.monotonic() - self._began, 3)
        try:
            require_there(self._layout.manifest(self.record.submission))
            write_worker(self._layout, self.record)
        except EnvironmentProblem as error:
            self.log(str(error))
