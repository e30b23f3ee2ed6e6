"""The machine that is this computer: several warm worker processes with one thread each.

Rows are handed out as workers become free. A worker that dies is replaced, and its row goes first again: it goes on
from its last checkpoint, until it has died several times without getting further.
"""

from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any, final

from grid.errors import SpecError
from runners.campaign import CampaignUnwritable
from runners.deaths import Deaths
from runners.machines.forks import Exit, Forked, Forks, Start, start_interpreter
from runners.machines.machine import Machine, Overseer
from runners.worker import Job, Outcome

_LOOK_EVERY_S = 0.2
"""How soon a stop request is noticed."""


@final
class Local(Machine):
    """`workers` processes on this computer; `start` starts the process that forks them."""

    def __init__(self, workers: int, *, start: Start = start_interpreter) -> None:
        if workers < 1:
            raise SpecError(f"a run needs at least one worker; got {workers}")
        self._workers = workers
        self._start = start

    @property
    def workers(self) -> int:
        """The number of processes."""
        return self._workers

    def run(self, job: Job, rows: Sequence[int], overseer: Overseer) -> None:
        """Train `rows` in worker processes."""
        forks = Forks(job.entry.preload, self._start)
        try:
            _Pool(job, rows, overseer, forks).run(min(self._workers, len(rows)))
        finally:
            forks.close()


@final
class _Member:
    """A worker process as the pool sees it."""

    def __init__(self, forked: Forked) -> None:
        self.number = forked.number
        self.pid = forked.pid
        self.pipe = forked.pipe
        self.row: int | None = None
        self.ready = False
        self.open = True


@final
class _Pool:
    def __init__(self, job: Job, rows: Sequence[int], overseer: Overseer, forks: Forks) -> None:
        self._job = job
        self._rows = deque(rows)
        self._overseer = overseer
        self._forks = forks
        self._members: dict[int, _Member] = {}
        self._stopping = False
        self._deaths = Deaths(job)

    def run(self, size: int) -> None:
        """Work until no row is left and every worker has gone."""
        for _ in range(size):
            self._add()
        while self._members:
            for ready in self._speakers():
                if ready is self._forks.news:
                    for ended in self._forks.exits():
                        self._buried(ended)
                else:
                    self._hear(next(found for found in self._members.values() if found.pipe is ready))
            if not self._stopping and self._overseer.stop_requested():
                self._stop()

    def _speakers(self) -> Sequence[object]:
        """The server's socket or workers' pipes that have something to say; none after a while."""
        if self._forks.told:  # read while a worker was forked: the socket would not show it
            return [self._forks.news]
        pipes = [member.pipe for member in self._members.values() if member.open]
        return wait([*pipes, self._forks.news], timeout=_LOOK_EVERY_S)

    def _add(self) -> None:
        member = _Member(self._forks.fork(self._overseer.worker_number()))
        self._members[member.pid] = member
        self._send(member, ("load", self._job, member.number))

    def _send(self, member: _Member, message: tuple[Any, ...]) -> None:
        try:
            member.pipe.send(message)
        except OSError:
            self._close(member)  # it has just died; the server will say how

    def _close(self, member: _Member) -> None:
        member.pipe.close()
        member.open = False

    def _stop(self) -> None:
        self._stopping = True
        for member in self._members.values():
            if member.open:
                self._send(member, ("stop",))

    def _hear(self, member: _Member) -> None:
        try:
            kind, *content = member.pipe.recv()
        except (EOFError, OSError):  # cut off between messages, or in one
            self._close(member)
            return
        if kind == "stepped":
            self._overseer.stepped(*content)
        elif kind == "started":
            row, attempt, step = content
            self._overseer.started(row, member.number, attempt, step)
        elif kind == "refused":
            raise content[0]
        elif kind == "unwritable":
            raise CampaignUnwritable(content[0])
        else:
            self._free(member, content[0] if content else None)

    def _free(self, member: _Member, outcome: Outcome | None) -> None:
        """The member has nothing to do: it has just loaded, or its row came back."""
        member.ready = True
        member.row = None
        if outcome is not None and outcome.status == "stopped" and not self._stopping:
            self._rows.appendleft(outcome.row)  # somebody asked this one worker to leave; the row is for the others
            return
        if outcome is not None:
            self._overseer.ended(outcome)
        if self._rows and not self._stopping:
            member.row = self._rows.popleft()
            self._send(member, ("row", member.row))
        else:
            self._send(member, ("stop",))

    def _buried(self, ended: Exit) -> None:
        """The server has reaped a worker: what it was doing is nobody's now."""
        member = self._members.pop(ended.pid)
        if member.open:
            self._last_words(member)
        if member.row is not None and not self._stopping:
            self._died(member, member.row, ended)
        elif not member.ready and not self._stopping:
            self._deaths.at_start(ended.how)
        if self._rows and not self._stopping:
            self._add()

    def _last_words(self, member: _Member) -> None:
        """Messages sent before the end are still in the pipe."""
        while member.open and member.pipe.poll(0):
            self._hear(member)
        if member.open:
            self._close(member)

    def _died(self, member: _Member, row: int, ended: Exit) -> None:
        failed = self._deaths.at_work(row, member.pid, ended.how)
        if failed is not None:
            self._overseer.ended(failed)
            return
        self._overseer.note(f"worker {member.number} died ({ended.how}); its trial goes on from its last checkpoint")
        self._rows.appendleft(row)
