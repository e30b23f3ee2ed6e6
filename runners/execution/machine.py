"""Machines, their row sources, and the overseer that receives their events; `Inline` trains in this process."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol, final

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Listener, NodeUnsuitable, Outcome, Worker


def notes_of(outcome: Outcome) -> Iterator[str]:
    """Say which checkpoints a trial could not use, and what it changed of its process, in a sentence each."""
    yield from outcome.notes
    if outcome.changes:
        kept = "a new process trains the next trial" if outcome.spent else "what can be restored was"
        yield f"it changed its process: {', '.join(outcome.changes)}; {kept}"


class Overseer(Listener, Protocol):
    """Callbacks of the run that uses a machine; no row begins once a stop is requested."""

    def worker_number(self) -> int:
        """Return a worker number that is unique in the submission."""

    def row_ended(self, outcome: Outcome) -> None:
        """Report the outcome of a row; a "stopped" row may begin again."""

    def note(self, text: str) -> None:
        """Show a message, such as the death of a worker."""


class RowSource(Protocol):
    """Source of the rows that a machine trains; used by one thread."""

    def take(self) -> int | None:
        """Take the next row; None if none may begin now."""

    def give_back(self, row: int) -> None:
        """Return a row after its worker died or left; it comes next."""

    def rows_left(self) -> int:
        """Return an upper bound of the rows left; at 0, workers exit."""


@final
class Queue(RowSource):
    """A fixed list of rows, each taken once."""

    def __init__(self, rows: Iterable[int]) -> None:
        self._rows = deque(rows)

    def take(self) -> int | None:
        return self._rows.popleft() if self._rows else None

    def give_back(self, row: int) -> None:
        self._rows.appendleft(row)

    def rows_left(self) -> int:
        return len(self._rows)


class Machine(ABC):
    """Trains rows of a submission."""

    name: ClassVar[str] = "inline"
    """In the records of its submissions."""

    @abstractmethod
    def run(self, job: RunRequest, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows`; return if all have an outcome or a stop took effect.

        Raises EnvironmentProblem if the campaign is not writable, or workers cannot be started.
        """


@final
class Inline(Machine):
    """Trains one trial after another in this process."""

    def run(self, job: RunRequest, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` here; each trial sets its number of threads."""
        worker = Worker(job, overseer.worker_number(), overseer, own_process=False)
        while not overseer.stop_requested() and (row := rows.take()) is not None:
            outcome = worker.run(row)
            overseer.row_ended(outcome)
            if outcome.spent:
                raise NodeUnsuitable(
                    "CUDA refuses this process from now on; run the same command again to go on in a new one"
                )
