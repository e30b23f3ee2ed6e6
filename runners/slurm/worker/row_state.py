"""What the campaign's files say about a row: done, to be had, or with somebody who is at work."""

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, final

from runners.attempts.leases import Leases
from runners.attempts.manifest import Manifest
from runners.attempts.micro_batches import wants_smaller
from runners.attempts.worker import Job
from runners.checkpoint import discard_forgotten
from store.files.atomic import environment_problem, retried
from store.files.layout import Layout
from store.files.trial_status import AttemptState, TrialState, last_beat_ns, local_process, trial_state


class RowLook(NamedTuple):
    """What was seen at one look."""

    at: Literal["done", "free", "held"]
    sure: bool = False
    """Of a held row: its owner is known to be alive, and not just not known to be dead."""
    lost_here: bool = False
    """Of a free row: its last owner was lost on this very node."""


@final
class RowStates:
    """The trials of a submission as a worker task on `node` sees them.

    Raises:
        StoreError: the manifest is torn.
    """

    def __init__(self, job: Job, node: str, leases: Leases | None = None) -> None:
        self._job = job
        self._node = node
        self._layout = Layout(job.root)
        self._manifest = Manifest(self._layout, job.submission)
        self._leases = leases or Leases(job.place)
        self._keys: dict[int, str] = {}
        self._first_beats: dict[tuple[str, int], int | None] = {}

    def line(self, row: int) -> dict[str, Any]:
        """The line of the manifest."""
        return self._manifest.line(row)

    def key(self, row: int) -> str:
        """The key of the row's trial."""
        found = self._keys.get(row)
        if found is None:
            found = self._keys[row] = self._manifest.trial(row)
        return found

    def begun(self, row: int) -> bool:
        """Whether anybody has ever begun it; the cheapest question there is.

        Raises:
            EnvironmentProblem: the file system does not answer.
        """
        path = self._layout.trial(self.key(row))
        try:
            return retried(path.exists)
        except OSError as error:
            raise environment_problem("look for", path, error) from error

    def look(self, row: int) -> RowLook:
        """How it is with a row now.

        Raises:
            EnvironmentProblem: the file system does not answer.
        """
        key = self.key(row)
        state = trial_state(self._layout, key, self._leases.alive)
        if self._settled(state) and not self._to_be_cut(row, state):
            if state.status == "ok":
                discard_forgotten(self._layout, key, state)
            return RowLook("done")
        if state.live is not None:
            return RowLook("held", sure=self._sure(key, state.live))
        return RowLook("free", lost_here=bool(state.attempts) and self._lost_here(state.attempts[-1]))

    def memory_bytes(self, rows: Iterable[int], *, gpu: bool) -> int | None:
        """The most that a finished trial of `rows` needed on such a device; None where none has finished on one."""
        states = (trial_state(self._layout, self.key(row), self._leases.alive) for row in rows if self.begun(row))
        ended = (found for state in states for found in state.attempts if found.end and found.end["status"] == "ok")
        same = (found.end for found in ended if str(found.start.get("device")).startswith("cuda") == gpu and found.end)
        return max((int(end.get("memory_bytes") or 0) for end in same), default=None)

    def _settled(self, state: TrialState) -> bool:
        """Whether its result stands; where old results are not enough, those of this submission are."""
        again = self._job.again if state.status == "ok" else self._job.retry
        if state.status not in ("ok", "failed") or not again:
            return state.status in ("ok", "failed")
        ends = [found for found in state.attempts if found.end is not None and found.end["status"] == state.status]
        return ends[-1].start.get("submission") == self._job.submission

    def _to_be_cut(self, row: int, state: TrialState) -> bool:
        """Whether it is for whoever takes it to try it in smaller pieces, or to find that there are none."""
        return self._job.oom == "halve" and state.status == "failed" and wants_smaller(state, self.line(row)["spec"])

    def _sure(self, key: str, live: AttemptState) -> bool:
        if local_process(live.start) is not None:
            return True
        beat = last_beat_ns(self._layout, key, live.attempt)
        return self._first_beats.setdefault((key, live.attempt), beat) != beat

    def _lost_here(self, last: AttemptState) -> bool:
        place = last.start.get("place")
        node = place.get("node") if isinstance(place, Mapping) else None
        return last.end is None and (node or last.start.get("host")) == (self._node if node else socket.gethostname())
