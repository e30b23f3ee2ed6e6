"""The rows of one worker task, found from files alone: its own, then what nobody has begun, then what was given up.

Workers ask nobody and tell nobody. Of two that reach for one row, one gets it: that is decided by the claim of the
trial and nowhere else, so what is seen here may be late but never makes a trial run twice.
"""

import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple, final

from runners.attempts.worker import Outcome
from runners.execution import RowSource
from runners.slurm.worker.completed_rows import CompletedRows
from runners.slurm.worker.row_state import RowStates

_LOOK_S = 0.1
"""A worker asks for a row between two looks at its processes; the files are read no longer than this at once."""
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0


class RowShare(NamedTuple):
    """Who this is among the workers of a class."""

    rows: tuple[int, int]
    """First row of the class, and the first after it."""
    worker: int
    workers: int

    @property
    def own(self) -> list[int]:
        """Rows that are this worker's to begin, in order."""
        first, end = self.rows
        return list(range(first + self.worker, end, self.workers))

    @property
    def others(self) -> list[int]:
        """Rows of the others, in an order of this worker's own: two that look for work do not meet at every row."""
        mine = set(self.own)
        found = [row for row in range(*self.rows) if row not in mine]
        random.Random(self.worker).shuffle(found)
        return found


@final
class NodeRows(RowSource):
    """Hands out rows while `willing` says that one may be begun.

    A row `seen` done, by this worker or another, is never looked at again; one that somebody works on is looked at now
    and then, less and less often.
    """

    def __init__(
        self,
        outlook: RowStates,
        share: RowShare,
        willing: Callable[[], bool],
        seen: CompletedRows,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outlook = outlook
        self._seen = seen
        self._willing = willing
        self._clock = clock
        self._back: deque[int] = deque()
        self._own = deque(share.own)
        self._others = deque(share.others)
        self._last: deque[int] = deque()
        self._later: list[tuple[float, float, int]] = []
        self._unsure: set[int] = set()
        self._dropped: frozenset[str] = frozenset()
        self._stopped: set[int] = set()
        self._heard = self._through = False
        self.out: set[int] = set()
        """Rows that are with this task's workers."""

    def take(self) -> int | None:
        if not self._willing():
            return None
        row = self._next(self._clock() + _LOOK_S)
        if row is not None:
            self.out.add(row)
        return row

    def give_back(self, row: int) -> None:
        self.out.discard(row)
        self._stopped.discard(row)
        if not self._off(row):
            self._back.appendleft(row)

    def reclaim(self) -> None:
        """All workers of this task are gone: what they had is to be begun again."""
        for row in sorted(self.out, reverse=True):
            self.give_back(row)

    def left(self) -> int:
        """0 as well once everything that is left is with others, who were all seen alive."""
        if not self._willing():
            return 0
        here = len(self._back) + len(self._own) + len(self._others) + len(self._last)
        if here or self.out or self._unsure:
            return here + len(self._later)
        return 0

    @property
    def unfinished(self) -> bool:
        """Whether there are rows that are neither done nor with somebody who is alive, as far as is known."""
        rows = {*self._back, *self._own, *self._others, *self._last, *self._unsure, *self._stopped, *self.out}
        return any(row not in self._seen and not self._off(row) for row in rows)

    def came_back(self, outcome: Outcome) -> None:
        """A worker of this task is through with a row; one that failed is not tried again, as no smaller piece is left
        where trials out of memory are cut."""
        self.out.discard(outcome.row)
        if outcome.status in ("ok", "was_ok", "was_failed") or outcome.failure:
            self._seen.add(outcome.row)
        elif outcome.status == "held":
            self._wait(outcome.row, _FIRST_WAIT_S, sure=False)
        elif outcome.status == "stopped":
            self._stopped.add(outcome.row)

    def drop(self, trials: Collection[str]) -> None:
        """Neither take nor take back rows of `trials`, given by their keys."""
        self._dropped = frozenset(trials)

    def _off(self, row: int) -> bool:
        return bool(self._dropped) and self._outlook.key(row) in self._dropped

    def _next(self, until: float) -> int | None:
        while self._back:
            row = self._back.popleft()
            if not self._off(row):
                return row
        if not self._heard:  # what others know is theirs to be asked for when no own row is left
            self._heard = True
            self._seen.recall()
        while self._own:
            if self._offers(row := self._own.popleft()):
                return row
            if self._clock() >= until:
                return None
        return self._of_others(until)

    def _of_others(self, until: float) -> int | None:
        """A row that is not this worker's own; what they know is read before their trials are looked at."""
        if not self._through:
            self._through = True
            self._seen.publish()
        if not self._seen.read(until):
            return None
        while self._others:
            row = self._others.popleft()
            if row in self._seen:
                continue
            if not self._outlook.begun(row):
                if not self._off(row):
                    return row
            else:
                self._wait(row, 0.0, sure=False)
            if self._clock() >= until:
                return None
        return self._given_up(until)

    def _given_up(self, until: float) -> int | None:
        """A row that had an owner; those that were lost on this very node come last."""
        while self._later and self._later[0][0] <= self._clock():
            _, waited, row = heapq.heappop(self._later)
            if self._offers(row, waited):
                return row
            if self._clock() >= until:
                return None
        for _ in range(len(self._last)):
            row = self._last.popleft()
            if self._offers(row, last=True):
                return row
        return None

    def _offers(self, row: int, waited: float = 0.0, *, last: bool = False) -> bool:
        """Whether the row is to be had now; if not, it is put where it belongs."""
        self._unsure.discard(row)
        if row in self._seen or self._off(row):
            return False
        found = self._outlook.look(row)
        if found.at == "done":
            self._seen.add(row)
        elif found.at == "held":
            self._wait(row, min(max(_FIRST_WAIT_S, 2 * waited), _LONGEST_WAIT_S), sure=found.sure)
        elif found.at == "free" and found.lost_here and not last:
            self._last.append(row)
        return found.at == "free" and (last or not found.lost_here)

    def _wait(self, row: int, seconds: float, *, sure: bool) -> None:
        heapq.heappush(self._later, (self._clock() + seconds, seconds, row))
        if not sure:
            self._unsure.add(row)
