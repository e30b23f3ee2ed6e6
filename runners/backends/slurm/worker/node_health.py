"""The health of the node of this worker task.

A node on which the first trials all fail leaves its rows to others. A failure is not blamed on the node if a healthy
node has seen it too; while no node is healthy, any other node counts.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import final

from ablate.runners.attempts.worker import Outcome
from ablate.runners.attempts.worker_records import WorkerRecord
from ablate.runners.backends.slurm.scheduler import ask
from ablate.store.state import State

MOST_FAILURES = 3
"""Failures in a row, for reasons unknown elsewhere, that stop a node without a finished trial."""


@final
class NodeHealth:
    """The health of the node of the worker `mine`; `is_only_node()` is true if the partition has one node."""

    def __init__(
        self, mine: WorkerRecord, records: Callable[[], Iterable[WorkerRecord]], is_only_node: Callable[[], bool]
    ) -> None:
        self._me = mine.place
        self._node = mine.node
        self._records, self._is_only_node = records, is_only_node
        self._trusted = False
        self._unexplained: list[str] = []
        self._explained: set[str] = set()

    def came_back(self, outcome: Outcome) -> str | None:
        """Count a row that came back; return a sentence if the node must take no more rows."""
        if outcome.state == State.DONE and outcome.attempt is not None:
            self._trusted = True
        failure = outcome.failure
        if self._trusted or failure is None or failure.reason not in ("error", "killed", "stalled"):
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
