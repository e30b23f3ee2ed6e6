"""What every machine does, and whom it reports to."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from runners.worker import Job, Outcome


class Overseer(Protocol):
    """The run on whose behalf a machine works."""

    def stop_requested(self) -> bool:
        """Whether workers are to stop at their next step boundary and no further row is begun."""

    def worker_number(self) -> int:
        """A number no other worker of this submission has."""

    def started(self, row: int, worker: int, attempt: int, step: int) -> None:
        """A worker claimed `row` and goes on from `step`."""

    def stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        """Training of `row` is at `step` of `steps`."""

    def ended(self, outcome: Outcome) -> None:
        """A row came back."""

    def note(self, text: str) -> None:
        """Something a person should know: a worker died, for one."""


class Machine(ABC):
    """A place where rows of a submission are trained."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many trials it trains at a time."""

    @abstractmethod
    def run(self, job: Job, rows: Sequence[int], overseer: Overseer) -> None:
        """Train `rows` in this order as workers become free; return when all came back or a stop took effect.

        Raises:
            EnvironmentProblem: the campaign takes no more records, or workers cannot be started.
        """
