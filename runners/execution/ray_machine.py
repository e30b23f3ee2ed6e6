"""Machine that trains on a Ray cluster, or in a Ray of its own on this computer: `pip install "ablate[ray]"`.

Its workers need the campaign, the spec files and the code under the same paths.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.runners.attempts.crash_counter import CrashCounter
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Listener, Outcome, Worker
from ablate.runners.execution.machine import Machine, Overseer, RowSource
from ablate.runners.execution.stall import StallLimits
from ablate.runners.execution.worker_loop import PATIENCE_S, TELL_EVERY_S
from ablate.store.files.atomic import set_retry_timeout
from ablate.store.files.layout import Layout
from ablate.store.state import State

_LOOK_EVERY_S = 0.2


class _Actor(Listener):
    """A worker in a process of Ray; one of its threads trains, another one hears and tells."""

    def __init__(self, job: RunRequest, number: int) -> None:
        self._job, self._number = job, number
        self._events: deque[tuple[Any, ...]] = deque()
        self._stopping, self._said_at = False, 0.0

    def load(self) -> int:
        """Create the worker, since Ray wraps what `__init__` raises; return the process."""
        words = f"worker {self._number}: "
        set_retry_timeout(PATIENCE_S, lambda text: self._events.append(("note", words + text)))
        self._worker = Worker(self._job, self._number, self, own_process=True)
        return os.getpid()

    def train(self, row: int) -> Outcome:
        return self._worker.run(row)

    def hear(self, *, stopping: bool) -> list[tuple[Any, ...]]:
        """Take the request to stop; return what has happened since the last call."""
        self._stopping = self._stopping or stopping
        return [self._events.popleft() for _ in range(len(self._events))]

    def stop_requested(self) -> bool:
        return self._stopping

    def row_started(self, row: int, attempt: int, step: int) -> None:
        self._events.append(("row_started", row, attempt, step))

    def row_stepped(self, row: int, step: int, steps: int | None, loss: float) -> None:
        if time.monotonic() - self._said_at >= TELL_EVERY_S:
            self._said_at = time.monotonic()
            self._events.append(("row_stepped", row, step, steps, loss))


@final
class Ray(Machine):
    """`workers` processes, by default and at most one per GPU of the cluster, else per core. RAY_ADDRESS names it.

    Unlike `Local`, it neither ends trials that stand still nor sees which process the system killed for lack of memory.
    """

    name = "ray"

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def run(self, job: RunRequest, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` in processes of Ray."""
        try:
            import ray
        except ImportError as error:
            raise EnvironmentProblem('--on ray has no Ray here; pip install "ablate[ray]"') from error
        _refuse_ignored(job)
        try:
            _start(ray)
            _Crew(ray, job, rows, overseer, self._workers).run()
        finally:
            ray.shutdown()


def _refuse_ignored(job: RunRequest) -> None:
    """Raise SpecError for what needs the parent of a process, which is Ray."""
    if job.oom == "halve":
        raise SpecError(
            'oom="halve" has no effect with Ray, which does not tell what was killed for memory; use --on local'
        )
    limits = StallLimits(job)
    for row in range(len(Manifest(Layout(job.root), job.submission))):
        if limits.of(row) is not None:
            raise SpecError(
                "execution.stall has no effect with Ray, where nothing ends a trial that stands still; use --on local"
            )


def _start(ray: Any) -> None:
    """Connect to the cluster, or start one here. Raise EnvironmentProblem if that fails."""
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    path = os.pathsep.join(filter(None, sys.path))
    try:
        if port.isdecimal():  # Ray itself tries an address without an answer for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        with _interruptible():
            ray.init(runtime_env={"env_vars": {"PYTHONPATH": path}}, log_to_driver=False)
    except (OSError, RuntimeError, ValueError, OverflowError, ray.exceptions.RayError) as error:
        place = f"of RAY_ADDRESS={address} cannot be used" if address else "of this machine does not start"
        raise EnvironmentProblem(
            f"the Ray {place} ({' '.join(str(error).split())}); correct or unset RAY_ADDRESS, or use --on local"
        ) from error


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have a first signal end the start of Ray, which sees no request to stop.

    Ray would set a handler of SIGTERM that notes no request: where its SystemExit is lost, the run goes on.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)} if main else {}

    def end(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        raise KeyboardInterrupt

    set_handler = signal.signal
    try:
        for name in [name for name, handler in before.items() if callable(handler)]:
            set_handler(name, end)
        if main:
            signal.signal = lambda number, _: signal.getsignal(number)  # type: ignore[assignment]
        yield
    finally:
        signal.signal = set_handler
        for name, handler in before.items():
            set_handler(name, handler)


@final
class _Crew:
    """The actors of a run, each with the row that it trains."""

    def __init__(self, ray: Any, job: RunRequest, rows: RowSource, overseer: Overseer, workers: int | None) -> None:
        self._ray, self._job, self._rows, self._overseer = ray, job, rows, overseer
        has = ray.cluster_resources()
        capacity = max(1, int(has.get("GPU") or has.get("CPU", 1)))
        self._size = min(workers or capacity, capacity)
        needs = {"num_cpus": 1, "num_gpus": 1 if has.get("GPU") else 0}
        self._actors = ray.remote(**needs, max_concurrency=2)(_Actor)
        self._deaths = CrashCounter(job)
        self._starting: dict[Any, Any] = {}
        """An actor, by its process to come; a cluster without a free slot starts it late or never."""
        self._at_work: dict[Any, tuple[Any, int, int]] = {}
        """An actor, its process and its row, by the outcome to come."""
        self._idle: list[tuple[Any, int]] = []
        self._problem: Exception | None = None

    def run(self) -> None:
        while True:
            stopping = self._problem is not None or self._overseer.stop_requested()
            if not stopping:
                self._employ()
            if not self._at_work and (stopping or self._rows.rows_left() == 0):
                break
            answers, _ = self._ray.wait([*self._starting, *self._at_work], timeout=_LOOK_EVERY_S)
            for actor, *_ in self._at_work.values():
                self._listen(actor, stopping=stopping)
            for answer in answers:
                try:
                    self._understand(answer)
                except (AblateError, self._ray.exceptions.RayError) as error:  # the others save first
                    self._problem = self._problem or getattr(error, "cause", error)
        if self._problem is not None:
            raise self._problem

    def _employ(self) -> None:
        """Give rows to idle actors; start more while rows are left for them."""
        while self._idle and (row := self._rows.take()) is not None:
            actor, process = self._idle.pop()
            self._at_work[actor.train.remote(row)] = actor, process, row
        while len(self._starting) < min(self._rows.rows_left(), self._size - len(self._at_work) - len(self._idle)):
            actor = self._actors.remote(self._job, self._overseer.worker_number())
            self._starting[actor.load.remote()] = actor

    def _understand(self, answer: Any) -> None:
        if answer in self._at_work:
            self._end(answer, *self._at_work.pop(answer))
            return
        actor = self._starting.pop(answer)
        try:
            self._idle.append((actor, self._ray.get(answer)))
        except self._ray.exceptions.RayActorError as error:
            self._deaths.at_start(str(error).splitlines()[-1])
        else:
            self._deaths.worker_ready()

    def _listen(self, actor: Any, *, stopping: bool) -> None:
        try:
            events = self._ray.get(actor.hear.remote(stopping=stopping))
        except self._ray.exceptions.RayActorError:
            return  # its outcome says so
        for name, *content in events:
            getattr(self._overseer, name)(*content)

    def _end(self, outcome: Any, actor: Any, process: int, row: int) -> None:
        try:
            ended: Outcome | None = self._ray.get(outcome)
        except self._ray.exceptions.RayActorError:
            ended = self._deaths.at_work(row, process, "its process is gone")
        else:
            self._listen(actor, stopping=False)
            self._idle += [] if ended is None or ended.spent else [(actor, process)]
        if ended is not None:
            self._overseer.row_ended(ended)
        if ended is None or (ended.spent and ended.state == State.STOPPED):
            self._overseer.note(f"process {process} is replaced; its trial goes on from its last checkpoint")
            self._rows.give_back(row)
