"""Counts and progress of a run, as its display shows them."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, final

from runners.attempts.worker import Outcome


class Running(NamedTuple):
    """A running trial."""

    label: str
    seed: int
    began_at: int
    step: int
    steps: int
    loss: float | None

    @property
    def fraction(self) -> float:
        """Finished part of the steps of this attempt."""
        left = self.steps - self.began_at
        return min(1.0, (self.step - self.began_at) / left) if left > 0 else 0.0


class GridMember(NamedTuple):
    """Name of a trial in the display."""

    cell: tuple[str, str]
    """Grid and label."""
    seed: int


@final
@dataclass
class Tally:
    """Counts of a run; `members` are its rows; `planned` counts trials per cell."""

    planned: Counter[tuple[str, str]]
    members: list[GridMember]
    ok: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: dict[int, Running] = field(default_factory=dict)
    ended: int = 0
    began: float | None = None

    def begin(self, row: int, step: int) -> None:
        """Note that a worker claimed `row`."""
        if self.began is None:
            self.began = time.monotonic()
        member = self.members[row]
        self.running[row] = Running(member.cell[1], member.seed, step, step, 0, None)

    def advance(self, row: int, step: int, steps: int, loss: float) -> None:
        """Update the progress of `row`."""
        if row in self.running:
            self.running[row] = self.running[row]._replace(step=step, steps=steps, loss=loss)

    def came_back(self, outcome: Outcome) -> None:
        """Count the outcome of a row."""
        self.running.pop(outcome.row, None)
        if outcome.status in ("ok", "was_ok"):
            self.ok[self.members[outcome.row].cell] += 1
        elif outcome.status in ("failed", "was_failed"):
            self.failed[self.members[outcome.row].cell] += 1
        if outcome.status not in ("held", "stopped"):
            self.ended += 1

    @property
    def cells_done(self) -> int:
        """Number of cells with every trial ok."""
        return sum(self.ok[cell] == count for cell, count in self.planned.items())

    @property
    def cells_failed(self) -> int:
        """Number of cells with a failed trial."""
        return sum(count > 0 for count in self.failed.values())

    @property
    def cells_running(self) -> int:
        """Number of cells with a running trial."""
        return len({self.members[row].cell for row in self.running})

    def seconds_left(self) -> float | None:
        """Estimate the time left from the work so far; None before any is done."""
        done = self.ended + sum(found.fraction for found in self.running.values())
        if self.began is None or done <= 0:
            return None
        return max(0.0, (time.monotonic() - self.began) * (len(self.members) - done) / done)


def tally(planned: Iterable[tuple[str, str]], members: Iterable[GridMember]) -> Tally:
    """Create an empty tally; `planned` names the cell of every trial."""
    return Tally(Counter(planned), list(members))
