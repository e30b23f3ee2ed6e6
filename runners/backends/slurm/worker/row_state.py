"""States of rows: free, taken or over, from the trial's files."""

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, final

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.attempt import is_of_one_trial
from ablate.runners.attempts.claims import record_death
from ablate.runners.attempts.leases import Leases, earlier_life
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.micro_batches import wants_smaller
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.checkpoint import checkpointed_step, discard_forgotten
from ablate.runners.processes.failure import out_of_memory
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import AttemptState, TrialState, last_beat_ns, local_process, trial_state
from ablate.store.state import State


class RowState(NamedTuple):
    """The state of a row by its files."""

    state: Literal["free", "taken", "over"]
    sure: bool = False
    """True for a taken row whose owner is known to be alive."""
    died_here: bool = False
    """True for a free row whose last owner was lost on this node."""


@final
class RowStates:
    """Reads the trials of a submission for a worker task on `node`. Raises StoreError if the manifest is damaged."""

    def __init__(self, job: RunRequest, node: str, leases: Leases | None = None) -> None:
        self._job, self._node = job, node
        self._layout = Layout(job.root)
        self._manifest = Manifest(self._layout, job.submission)
        self._leases = leases or Leases(job.place)
        self._keys: dict[int, str] = {}
        self._first_beats: dict[tuple[str, int], int | None] = {}

    def line(self, row: int) -> dict[str, Any]:
        return self._manifest.line(row)

    def key(self, row: int) -> str:
        if row not in self._keys:
            self._keys[row] = self._manifest.trial(row)
        return self._keys[row]

    def state_of_row(self, row: int) -> RowState:
        """Return the state of a row, "taken" while the paths of its trial cannot be read.

        Raises EnvironmentProblem if the file system does not answer.
        """
        key = self.key(row)
        try:
            state = trial_state(self._layout, key, self._leases.alive)
        except EnvironmentProblem as error:
            if not is_of_one_trial(error, self._layout):
                raise
            return RowState("taken", sure=True)
        halve = self._job.oom == "halve" and state.state == State.FAILED
        if self._is_done(state) and not (halve and wants_smaller(state, self.line(row)["spec"])):
            if state.state == State.DONE:
                discard_forgotten(self._layout, key, state)
            return RowState("over")
        if state.live is not None:
            beat = last_beat_ns(self._layout, key, state.live.attempt)
            seen_to_beat = self._first_beats.setdefault((key, state.live.attempt), beat) != beat
            return RowState("taken", sure=seen_to_beat or local_process(state.live.start) is not None)
        return RowState("free", died_here=bool(state.attempts) and self._died_here(state.attempts[-1]))

    def record_out_of_memory(self, rows: Iterable[int], place: Mapping[str, Any]) -> list[str]:
        """Record that attempts of earlier lives of the task at `place` ran out of memory; return their trials."""
        trials = []
        for row in rows:
            last = trial_state(self._layout, self.key(row), self._leases.alive).attempts[-1:]
            if last and last[0].end is None and earlier_life(last[0].start.get("place"), place):
                step = checkpointed_step(self._layout, self.key(row))
                record_death(self._layout, self.key(row), last[0].attempt, step, out_of_memory(1))
                trials.append(self.key(row))
        return trials

    def _is_done(self, state: TrialState) -> bool:
        """Return True if its result stands; with retry or again, only a result of this submission does."""
        repeat = self._job.again if state.state == State.DONE else self._job.retry
        last = {State.DONE: state.result, State.FAILED: state.ended}.get(state.state)
        return last is not None and (not repeat or last.start.get("submission") == self._job.submission)

    def _died_here(self, last: AttemptState) -> bool:
        place = last.start.get("place")
        node = place.get("node") if isinstance(place, Mapping) else None
        return last.end is None and (node or last.start.get("host")) == (self._node if node else socket.gethostname())
