"""Machine that trains in warm worker processes on this computer, one thread each.

Free workers take the next row. If a worker dies, a new one continues its row from the last checkpoint. The trial fails
after several deaths without progress.
"""

from collections.abc import Collection, Sequence
from typing import final

from grid.errors import SpecError
from runners.attempts.worker import Job
from runners.execution.fork_client import Forks, Start, start_interpreter
from runners.execution.machine import Machine, Overseer, RowSource
from runners.execution.pool import WorkerPool
from runners.output import format_count


@final
class Local(Machine):
    """`workers` processes on this computer; `start` starts the process that forks them.

    `devices`, one for each worker, is the CUDA_VISIBLE_DEVICES of that worker and its replacements; None leaves it
    unchanged. Workers on one device share its memory evenly.
    """

    def __init__(
        self, workers: int, *, devices: Sequence[str | None] | None = None, start: Start = start_interpreter
    ) -> None:
        if workers < 1:
            raise SpecError(f"a run needs at least one worker; got {workers}")
        self._slots: list[str | None] = [None] * workers if devices is None else list(devices)
        if len(self._slots) != workers:
            raise SpecError(
                f"every worker has a device: {format_count(workers, 'worker')}, "
                f"{format_count(len(self._slots), 'device')}"
            )
        self._start = start
        self._pool: WorkerPool | None = None

    @property
    def workers(self) -> int:
        """Number of processes."""
        return len(self._slots)

    def grow(self, devices: Sequence[str | None]) -> None:
        """Add a worker for each of `devices`; during a run, call it from the thread of the overseer."""
        self._slots.extend(devices)

    def recall(self, rows: Collection[int]) -> None:
        """Ask the workers that train any of `rows` to save and exit; new workers replace them."""
        if self._pool is not None:
            self._pool.recall(rows)

    def run(self, job: Job, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` in worker processes."""
        forks = Forks(job.entry.preload, self._start)
        try:
            self._pool = WorkerPool(job, rows, overseer, forks, self._slots)
            self._pool.run()
        finally:
            self._pool = None
            forks.close()
