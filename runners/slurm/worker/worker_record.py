"""The record file and log of a worker task, and the health of its node.

A node on which the first trials all fail leaves its rows to others. A failure is not blamed on the node if a healthy
node has seen it too; while no node is healthy, any other node counts.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import final

from grid.errors import EnvironmentProblem
from runners.attempts.attempt import require_there
from runners.attempts.worker import Outcome
from runners.slurm.scheduler import ask
from runners.slurm.worker.assignment import Assignment
from runners.slurm.worker_records import MOST_FINGERPRINTS, Left, WorkerRecord, write_worker

MOST_FAILURES = 3
"""Failures in a row, for reasons unknown elsewhere, that stop a node without a finished trial."""

_EVERY_S = 60.0


@final
class WorkerRecordFile:
    """The record of a task that begins now; a record that cannot be written is reported once and tried again."""

    def __init__(self, assignment: Assignment) -> None:
        self._layout = assignment.layout
        self._began = time.monotonic()
        self._due = self._began
        self._failed = False
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
            gpus=assignment.resources.gpus * assignment.resources.nodes,
            slots=1,
            cpus=assignment.resources.cpus * assignment.resources.nodes,
        )

    def keep(self) -> None:
        """Write the record every minute."""
        if time.monotonic() >= self._due:
            self._write()

    def set_slots(self, slots: int) -> None:
        """Record how many trials are trained side by side."""
        self.record = replace(self.record, slots=slots)

    def count(self, outcome: Outcome) -> None:
        """Count a row that came back."""
        if outcome.status in ("ok", "failed", "stopped"):
            count = getattr(self.record, outcome.status) + 1
            self.record = replace(self.record, **{outcome.status: count})
        if outcome.failure is not None:
            failures = dict.fromkeys((*self.record.failures, outcome.failure.fingerprint))
            self.record = replace(self.record, failures=tuple(failures)[:MOST_FINGERPRINTS])

    def close(self, left: Left, says: str | None = None) -> None:
        """Record why the task leaves."""
        self.record = replace(self.record, left=left, says=says)
        self._write()
        record = self.record
        counts = f"{record.ok} ok, {record.failed} failed, {record.stopped} stopped"
        self.log(f"leaves: {left}; {counts}" + (f"; {says}" if says else ""))

    def log(self, text: str) -> None:
        """Print a line to the task's log."""
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")
        sys.stdout.flush()

    def _write(self) -> None:
        self._due = time.monotonic() + _EVERY_S
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


@final
class NodeHealth:
    """The health of the node of the worker `mine`; `is_only_node()` is true if the partition has one node."""

    def __init__(
        self, mine: WorkerRecord, records: Callable[[], Iterable[WorkerRecord]], is_only_node: Callable[[], bool]
    ) -> None:
        self._me = mine.place
        self._node = mine.node
        self._records = records
        self._is_only_node = is_only_node
        self._trusted = False
        self._unexplained: list[str] = []
        self._explained: set[str] = set()

    def came_back(self, outcome: Outcome) -> str | None:
        """Count a row that came back; return a sentence if the node must take no more rows."""
        if outcome.status == "ok":
            self._trusted = True
        failure = outcome.failure
        if self._trusted or failure is None or failure.reason not in ("error", "killed"):
            return None
        if failure.fingerprint not in self._explained:
            self._unexplained.append(failure.fingerprint)
        if len(self._unexplained) < MOST_FAILURES:
            return None
        self._compare_with_others()
        if len(self._unexplained) < MOST_FAILURES or self._trusted:
            return None
        return (
            f"{len(self._unexplained)} trials in a row failed on {self._node} and none was trained, for reasons "
            f"that no other node has met (the last: {failure.message}); look at the node, then `ablate retry --failed`"
        )

    def _compare_with_others(self) -> None:
        records = list(self._records())
        well = {record.place for record in records if record.ok}
        self._trusted = self._me in well or (not well and self._is_only_node())
        for record in records:
            if record.place in well if well else record.node != self._node:
                self._explained.update(record.failures)
        self._unexplained = [each for each in self._unexplained if each not in self._explained]


def only_node(partitions: str | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if the requested partitions (None: the current one) have a single node."""
    names = partitions or environ.get("SLURM_JOB_PARTITION", "")
    said = ask("sinfo", "--noheader", "--Node", f"--partition={names}", "--format=%N")
    return said.problem is None and len(set(said.text.split())) == 1
