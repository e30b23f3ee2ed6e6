"""What every machine does, where its rows come from, and whom it reports to."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Protocol, final

from runners.attempts.worker import Job, Outcome


class Overseer(Protocol):
    """The run on whose behalf a machine works."""

    def stop_requested(self) -> bool:
        """Whether workers are to stop at their next step boundary and no further row is begun."""

    def worker_number(self) -> int:
        """A number no other worker of this submission has."""

    def row_started(self, row: int, worker: int, attempt: int, step: int) -> None:
        """A worker claimed `row` and goes on from `step`."""

    def row_stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        """Training of `row` is at `step` of `steps`."""

    def row_ended(self, outcome: Outcome) -> None:
        """A row came back; one that is "stopped" is begun again where it was given back to the rows."""

    def note(self, text: str) -> None:
        """Something a person should know: a worker died, for one."""


class RowSource(Protocol):
    """Where a machine gets the rows it trains; asked by one thread."""

    def take(self) -> int | None:
        """The next row; None: none is to be begun now."""

    def give_back(self, row: int) -> None:
        """Its worker died or was asked to leave; the row goes first."""

    def rows_left(self) -> int:
        """At most so many rows are left to take; once it is 0 no worker waits for one."""


@final
class Queue(RowSource):
    """Given rows, each handed out once."""

    def __init__(self, rows: Iterable[int]) -> None:
        self._rows = deque(rows)

    def take(self) -> int | None:
        return self._rows.popleft() if self._rows else None

    def give_back(self, row: int) -> None:
        self._rows.appendleft(row)

    def rows_left(self) -> int:
        return len(self._rows)


class Machine(ABC):
    """A place where rows of a submission are trained."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many trials it trains at a time."""

    @abstractmethod
    def run(self, job: Job, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` as workers become free; return when none is left and all came back, or a stop took effect.

        Raises:
            EnvironmentProblem: the campaign takes no more records, or workers cannot be started.
        """
