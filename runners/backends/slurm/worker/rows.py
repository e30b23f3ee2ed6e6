"""The rows that a worker task trains: its own, then rows of others that nobody has begun or whose owner is gone.

Workers do not talk to each other. The claim of a trial decides between two workers, so a late look never trains a trial
twice.
"""

import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple, final

from ablate.runners.attempts.worker import Outcome
from ablate.runners.backends.slurm.worker.done_rows import DoneRows
from ablate.runners.backends.slurm.worker.row_state import RowStates
from ablate.runners.execution import RowSource
from ablate.store.state import ENDED, State

_LOOK_S = 0.1
"""Longest time that one call reads files: between calls, the task looks after its processes."""
_SETTLE_S = 5.0
"""Longest time for the question whether any row is left, so that no worker is queued again for nothing."""
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0


class RowShare(NamedTuple):
    """A worker's place among the workers of a class."""

    rows: tuple[int, int]
    worker: int
    workers: int

    @property
    def own(self) -> list[int]:
        """Rows that this worker begins, in order."""
        first, end = self.rows
        return list(range(first + self.worker, end, self.workers))

    @property
    def others(self) -> list[int]:
        """Rows of the other workers, in random order: two workers seldom reach for the same row."""
        own = set(self.own)
        rows = [row for row in range(*self.rows) if row not in own]
        random.Random(self.worker).shuffle(rows)
        return rows


@final
class NodeRows(RowSource):
    """Hands out rows while `willing` says that one may begin.

    A row that is `done` is never examined again. A row that somebody works on is examined less and less often.
    """

    def __init__(
        self,
        states: RowStates,
        share: RowShare,
        willing: Callable[[], bool],
        done: DoneRows,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states, self._done = states, done
        self._willing, self._clock = willing, clock
        self._back: deque[int] = deque()
        self._own = deque(share.own)
        self._last: deque[int] = deque()
        """Rows that were lost on this node; other nodes go first."""
        others = share.others
        self._later = [(float(place - len(others)), 0.0, row) for place, row in enumerate(others)]
        """A heap of rows of others: time of the next look, pause before it, row."""
        self._unsure = set(others)
        """Rows of others whose owner is not known to be alive."""
        self._dropped: frozenset[str] = frozenset()
        self._stopped: set[int] = set()
        self._begun = False
        self.out: set[int] = set()
        """Rows that are with this task's workers."""

    def take(self) -> int | None:
        row = self._next(self._clock() + _LOOK_S) if self._willing() else None
        if row is not None:
            self.out.add(row)
        return row

    def give_back(self, row: int) -> None:
        self.out.discard(row)
        self._stopped.discard(row)
        if not self._is_dropped(row):
            self._back.appendleft(row)

    def reclaim(self) -> None:
        """Take back all rows after the workers of this task died."""
        for row in sorted(self.out, reverse=True):
            self.give_back(row)

    def rows_left(self) -> int:
        """Count the rows that this task may still get: 0 once live workers hold the rest."""
        here = len(self._back) + len(self._own) + len(self._last)
        return here + len(self._later) if self._willing() and (here or self.out or self._unsure) else 0

    @property
    def unfinished(self) -> bool:
        """True if rows may be neither done nor with a live owner; reads their files, for a few seconds at most."""
        until = self._clock() + _SETTLE_S
        mine = (*self._stopped, *self.out, *self._back)
        for row in (*mine, *self._unsure, *self._last, *self._own):
            if row in self._done or self._is_dropped(row):
                continue
            state = self._states.state_of_row(row)
            if state.state == "over" and row not in mine:
                self._done.add(row)
            if row in mine or self._clock() >= until or not (state.state == "over" or state.sure):
                return True
        return False

    def came_back(self, outcome: Outcome) -> None:
        """Record a worker's outcome of a row; a failed row is not tried again."""
        self.out.discard(outcome.row)
        if outcome.state in ENDED:
            # a failure that this node could not record is no end for another node
            self._done.add(outcome.row, mark=outcome.attempt is not None or outcome.failure is None)
        elif outcome.state == State.RUNNING:
            self._wait(outcome.row, _FIRST_WAIT_S, sure=False)
        elif outcome.state == State.STOPPED:
            self._stopped.add(outcome.row)

    def drop(self, trials: Collection[str]) -> None:
        """Hand out no rows of these trials (keys) any more."""
        self._dropped = frozenset(trials)

    def _is_dropped(self, row: int) -> bool:
        return bool(self._dropped) and self._states.key(row) in self._dropped

    def _next(self, until: float) -> int | None:
        while self._back:
            if not self._is_dropped(row := self._back.popleft()):
                return row
        if not self._begun:  # in an earlier life, rows of its own were done
            self._begun = True
            self._done.read()
        while self._own:
            if self._is_free(row := self._own.popleft()):
                return row
            if self._clock() >= until:
                return None
        return self._next_of_others(until)

    def _next_of_others(self, until: float) -> int | None:
        """Return a row of another worker; read first which are done. Rows that were lost on this node come last."""
        self._done.read()
        while self._later and self._later[0][0] <= self._clock():
            _, waited, row = heapq.heappop(self._later)
            if self._is_free(row, waited):
                return row
            if self._clock() >= until:
                return None
        for _ in range(len(self._last)):
            if self._is_free(row := self._last.popleft(), last=True):
                return row
        return None

    def _is_free(self, row: int, waited: float = 0.0, *, last: bool = False) -> bool:
        """Return True if the row may begin now; otherwise file it for later."""
        self._unsure.discard(row)
        if row in self._done or self._is_dropped(row):
            return False
        state = self._states.state_of_row(row)
        if state.state == "over":
            self._done.add(row)
        elif state.state == "taken":
            self._wait(row, min(max(_FIRST_WAIT_S, 2 * waited), _LONGEST_WAIT_S), sure=state.sure)
        elif state.died_here and not last:
            self._last.append(row)
        return state.state == "free" and (last or not state.died_here)

    def _wait(self, row: int, seconds: float, *, sure: bool) -> None:
        heapq.heappush(self._later, (self._clock() + seconds, seconds, row))
        if not sure:
            self._unsure.add(row)
