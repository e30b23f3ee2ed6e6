"""Machine that trains in this process, for small grids, debugging and tests."""

from typing import final

from runners.attempts.worker import Job, NodeUnsuitable, Worker
from runners.execution.machine import Machine, Overseer, RowSource


@final
class Inline(Machine):
    """Trains one trial after another in this process."""

    @property
    def workers(self) -> int:
        """Always 1."""
        return 1

    def run(self, job: Job, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` here; each trial sets its number of threads."""
        number = overseer.worker_number()
        worker = Worker(job, number, _Here(number, overseer), own_process=False)
        while not overseer.stop_requested() and (row := rows.take()) is not None:
            outcome = worker.run(row)
            overseer.row_ended(outcome)
            if outcome.spent:
                raise NodeUnsuitable(
                    "CUDA refuses this process from now on; run the same command again to go on in a new one"
                )


@final
class _Here:
    """Forwards events of the worker to the overseer."""

    def __init__(self, number: int, overseer: Overseer) -> None:
        self._number = number
        self._overseer = overseer
        self.stop_requested = overseer.stop_requested
        self.row_stepped = overseer.row_stepped

    def row_started(self, row: int, attempt: int, step: int) -> None:
        self._overseer.row_started(row, self._number, attempt, step)
