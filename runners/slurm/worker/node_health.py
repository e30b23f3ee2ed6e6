"""Whether it is the node or the trials: what fails here one after another, and what other nodes say of it.

A node that trains nothing to the end leaves its rows to others before it has spoilt them all. Failures that a node has
met which trains well are those of the trials; and where no node at all has trained one, those that two nodes share.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, final

from runners.attempts.worker import Outcome
from runners.slurm.worker_records import WorkerRecord

MOST_FAILURES = 3
"""Trials that fail in a row on a node that has trained none, for reasons that only it has met."""

_OF_A_NODE = ("error", "killed")
_PATIENCE_S = 30.0


@final
class NodeHealth:
    """Those of the worker whose record is `mine`; `records` are those of all, `alone` is whether there is one node."""

    def __init__(
        self, mine: WorkerRecord, records: Callable[[], Iterable[WorkerRecord]], alone: Callable[[], bool]
    ) -> None:
        self._me = _who(mine)
        self._records = records
        self._alone = alone
        self._trusted = False
        self._unexplained: list[str] = []
        self._explained: set[str] = set()

    def came_back(self, outcome: Outcome) -> str | None:
        """A row came back; a sentence where the node is to take no more."""
        if outcome.status == "ok":
            self._trusted = True
        failure = outcome.failure
        if self._trusted or failure is None or failure.reason not in _OF_A_NODE:
            return None
        if failure.fingerprint not in self._explained:
            self._unexplained.append(failure.fingerprint)
        if len(self._unexplained) < MOST_FAILURES:
            return None
        self._ask()
        if len(self._unexplained) < MOST_FAILURES or self._trusted:
            return None
        return (
            f"{len(self._unexplained)} trials in a row failed on {self._me.node} and none was trained, for reasons "
            f"that no other node has met (the last: {failure.message}); look at the node, then `ablate retry --failed`"
        )

    def _ask(self) -> None:
        """Learn what others have met, and whether this worker has ever trained well here."""
        records = list(self._records())
        well = {_who(found) for found in records if found.ok}
        self._trusted = self._me in well or (not well and self._alone())
        fair = [found for found in records if (_who(found) in well if well else found.node != self._me.node)]
        self._explained.update(*(found.failures for found in fair))
        self._unexplained = [each for each in self._unexplained if each not in self._explained]


def only_node(partitions: str | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether SLURM says that the partitions this task was asked for have one node; None: the one it runs in."""
    asked = partitions or environ.get("SLURM_JOB_PARTITION", "")
    ask = ["sinfo", "--noheader", "--Node", f"--partition={asked}", "--format=%N"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and len(set(answer.stdout.split())) == 1


class _Who(NamedTuple):
    """Whose records count together: the lives of one worker on one node."""

    node: str
    resource_class: int
    worker: int


def _who(found: WorkerRecord) -> _Who:
    return _Who(found.node, found.resource_class, found.worker)
