"""Machine that trains in warm worker processes on this computer, one thread each.

Free workers take the next row. If a worker dies, a new one continues its row from the last checkpoint. The trial fails
after several deaths without progress.
"""

from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import wait
from typing import Any, final

from ablate.grid.errors import AblateError, SpecError
from ablate.runners.attempts.crash_counter import CrashCounter
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Outcome
from ablate.runners.execution.fork_client import Exit, Forked, Forks, ServerDied, Start, start_interpreter
from ablate.runners.execution.machine import Machine, Overseer, RowSource
from ablate.runners.execution.stall import Stall, StallLimits
from ablate.store.state import State

_LOOK_EVERY_S = 0.2
"""Longest delay until a stop request, a free row or a new slot is noticed."""


@final
class _PoolMember:
    """A worker process as the pool sees it."""

    def __init__(self, forked: Forked, slot: int) -> None:
        self.number, self.pid, self.pipe = forked
        self.slot = slot
        self.row: int | None = None
        self.began = self.ready = self.leaving = False
        self.open = True
        self.stall: Stall | None = None
        """The silence about its row, if the trial has a limit."""

    @property
    def idle(self) -> bool:
        return self.ready and self.row is None and self.open and not self.leaving


@final
class WorkerPool:
    """One worker per entry of `slots`, its CUDA_VISIBLE_DEVICES; slots may be appended during a run."""

    def __init__(
        self, job: RunRequest, rows: RowSource, overseer: Overseer, forks: Forks, slots: Sequence[str | None]
    ) -> None:
        self._job, self._rows, self._overseer = job, rows, overseer
        self._forks, self._slots = forks, slots
        self._members: dict[int, _PoolMember] = {}
        self._stopping = False
        self._problem: AblateError | None = None
        self._deaths = CrashCounter(job)
        self._stalls = StallLimits(job)

    def run(self) -> None:
        """Run until no row is left and every worker has exited.

        If a worker raises an error, the others save and exit first.
        """
        self._attempt(self._fill)
        while self._members:
            for ready in self._speakers():
                if ready is self._forks.control:
                    for ended in self._forks.exits():
                        self._bury(ended)
                else:
                    self._hear(next(each for each in self._members.values() if each.pipe is ready))
            self._end_stalled()
            if self._overseer.stop_requested():
                self._stop()
            if not self._stopping:
                self._attempt(self._employ)
            if not self._stopping:
                self._attempt(self._fill)
        if self._problem is not None:
            raise self._problem

    def _attempt(self, duty: Callable[[], None]) -> None:
        try:
            duty()
        except ServerDied:  # and all workers with it
            raise
        except AblateError as error:
            self._give_up(error)

    def _give_up(self, error: AblateError) -> None:
        self._problem = self._problem or error
        self._stop()

    def recall(self, rows: Collection[int]) -> None:
        """Ask the workers that train any of `rows` to save and exit."""
        for member in self._members.values():
            if member.row in rows and member.open and not member.leaving:
                self._dismiss(member)

    def _speakers(self) -> Sequence[object]:
        """Wait for readable pipes or the server's socket; empty after a timeout."""
        if self._forks.has_exits:  # exits already read, so the socket does not show them
            return [self._forks.control]
        pipes = [member.pipe for member in self._members.values() if member.open]
        return wait([*pipes, self._forks.control], timeout=_LOOK_EVERY_S)

    def _fill(self) -> None:
        """Start workers in free slots while rows are left for them."""
        taken = {member.slot for member in self._members.values()}
        for slot in [slot for slot in range(len(self._slots)) if slot not in taken]:
            loading = sum(not each.ready or each.idle for each in self._members.values())
            if self._rows.rows_left() <= loading:
                return
            member = _PoolMember(self._forks.fork(self._overseer.worker_number()), slot)
            self._members[member.pid] = member
            self._send(member, ("load", self._job, member.number, self._slots[slot]))

    def _employ(self) -> None:
        """Give a row to each idle worker, or dismiss it if none is left."""
        for member in [each for each in self._members.values() if each.idle]:
            row = self._rows.take()
            if row is None:
                break
            member.row, member.began = row, False
            device = self._slots[member.slot]
            share = 1.0 if device is None else 1.0 / list(self._slots).count(device)  # share of memory
            self._send(member, ("row", row, share))
        if self._rows.rows_left() == 0:
            for member in [each for each in self._members.values() if each.idle]:
                self._dismiss(member)

    def _end_stalled(self) -> None:
        """Kill the workers whose trials stand still; `_bury` records it."""
        for member in self._members.values():
            if member.stall is not None and member.open and not member.pipe.poll(0):
                member.stall.check(member.pid)

    def _send(self, member: _PoolMember, message: tuple[Any, ...]) -> None:
        try:
            member.pipe.send(message)
        except OSError:
            self._close(member)  # it died; the server reports how

    def _dismiss(self, member: _PoolMember) -> None:
        member.leaving = True
        self._send(member, ("stop",))

    def _close(self, member: _PoolMember) -> None:
        member.pipe.close()
        member.open = False

    def _stop(self) -> None:
        for member in self._members.values():
            if member.open and not self._stopping:
                self._dismiss(member)
        self._stopping = True

    def _hear(self, member: _PoolMember) -> None:
        try:
            kind, *content = member.pipe.recv()
        except (EOFError, OSError):  # the worker died
            self._close(member)
            return
        if member.stall is not None and kind in ("stepped", "works"):
            member.stall.hear(content[0] if kind == "works" else 0.0)
        self._attempt(lambda: self._understand(member, kind, content))

    def _understand(self, member: _PoolMember, kind: str, content: Sequence[Any]) -> None:
        if kind == "stepped":
            self._overseer.row_stepped(*content)
        elif kind == "started":
            row, attempt, step = content
            if member.began:  # second attempt in this process, with more micro-batches
                self._deaths.out_of_memory()
            member.began = True
            member.stall = self._stalls.of(row)
            self._overseer.row_started(row, attempt, step)
        elif kind == "note":
            self._overseer.note(f"worker {member.number}: {content[0]}")
        elif kind == "refused":
            self._give_up(content[0])
        elif kind == "ended":
            self._came_back(member, content[0])
        elif kind == "leaves":
            member.leaving = True
        elif kind == "ready":
            member.ready = True
            self._deaths.worker_ready()

    def _came_back(self, member: _PoolMember, outcome: Outcome) -> None:
        member.row = member.stall = None
        if outcome.failure is not None and outcome.failure.reason == "out_of_memory":
            self._deaths.out_of_memory()
        self._overseer.row_ended(outcome)
        if outcome.state == State.STOPPED and not self._stopping:
            self._dismiss(member)  # this worker was asked to leave; others take the row
            self._rows.give_back(outcome.row)

    def _bury(self, ended: Exit) -> None:
        """Remove a worker that ended, and give back or fail its row."""
        member = self._members[ended.pid]
        while member.open and member.pipe.poll(0):  # messages that are still in the pipe
            self._hear(member)
        if member.open:
            self._close(member)
        del self._members[ended.pid]
        if member.row is not None and member.stall is not None and member.stall.ended:
            row, limit_s = member.row, member.stall.limit_s
            self._attempt(lambda: self._overseer.row_ended(self._deaths.record_stall(row, member.pid, limit_s)))
        elif member.row is not None and not self._stopping:
            row = member.row
            self._attempt(lambda: self._died(member, row, ended))
        elif not member.ready and not self._stopping:
            self._attempt(lambda: self._deaths.at_start(ended.how))

    def _died(self, member: _PoolMember, row: int, ended: Exit) -> None:
        failed = self._deaths.at_work(row, member.pid, ended.how)
        if failed is not None:
            self._overseer.row_ended(failed)
            return
        self._overseer.note(f"worker {member.number} died ({ended.how}); its trial goes on from its last checkpoint")
        self._rows.give_back(row)


@final
class Local(Machine):
    """`workers` processes on this computer, or one for each of `devices`; `start` starts the process that forks them.

    A device is the CUDA_VISIBLE_DEVICES of its worker and the replacements; None leaves it unchanged. Workers on one
    device share its memory evenly.
    """

    name = "local"

    def __init__(
        self, workers: int = 1, *, devices: Sequence[str | None] | None = None, start: Start = start_interpreter
    ) -> None:
        self._slots: list[str | None] = [None] * workers if devices is None else list(devices)
        if not self._slots:
            raise SpecError(f"{workers} workers are too few for a run; give at least 1")
        self._start = start
        self._pool: WorkerPool | None = None

    @property
    def workers(self) -> int:
        """Number of processes."""
        return len(self._slots)

    def recall(self, rows: Collection[int]) -> None:
        """Ask the workers that train any of `rows` to save and exit; new workers replace them."""
        if self._pool is not None:
            self._pool.recall(rows)

    def run(self, job: RunRequest, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` in worker processes."""
        forks = Forks(job.preload, self._start)
        try:
            self._pool = WorkerPool(job, rows, overseer, forks, self._slots)
            self._pool.run()
        finally:
            self._pool = None
            forks.close()
