"""Fakes for tests of the rows of a worker task: the state of rows, the clock, and willing nodes."""

from collections.abc import Callable

from ablate.runners.attempts.worker import Listener, Outcome
from ablate.runners.backends.slurm.worker.done_rows import DoneRows
from ablate.runners.backends.slurm.worker.row_state import RowState
from ablate.runners.backends.slurm.worker.rows import NodeRows, RowShare
from ablate.store.files.layout import Layout

SUBMISSION = "20260101T000000-000000"
FREE, DONE, HELD, ALIVE = RowState("free"), RowState("over"), RowState("taken"), RowState("taken", sure=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.pause_s = 0.0
        """Seconds that pass at each look at the clock."""

    def __call__(self) -> float:
        self.now += self.pause_s
        return self.now


class Silent(Listener):
    """A listener of a worker that never asks to stop."""


class Seen:
    """An outlook that is told what there is to see, and counts how often it was asked."""

    def __init__(self, looks: dict[int, RowState] | None = None) -> None:
        self.looks = looks or {}
        self.asked: list[int] = []

    def key(self, row: int) -> str:
        return f"{row:032x}"

    def state_of_row(self, row: int) -> RowState:
        self.asked.append(row)
        return self.looks.get(row, FREE)


def rows_of(
    seen: Seen,
    share: RowShare,
    clock: Clock | None = None,
    willing: Callable[[], bool] = lambda: True,
    done: DoneRows | None = None,
) -> NodeRows:
    return NodeRows(seen, share, willing, done or DoneRows(Layout("/nowhere"), SUBMISSION), clock or Clock())  # type: ignore[arg-type]


def drained(rows: NodeRows) -> list[int]:
    found = []
    while (row := rows.take()) is not None:
        found.append(row)
        rows.came_back(Outcome(row, "done", 1))
    return found
