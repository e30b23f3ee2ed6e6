"""Machine that trains on a Ray cluster, or in a Ray of its own on this computer: `pip install "ablate[ray]"`.

Its workers need the campaign, the spec files and the code under the same paths.
"""

import os
import signal
import sys
import time
from collections import deque
from typing import Any, final

from ablate.grid.errors import AblateError, EnvironmentProblem
from ablate.runners.attempts.crash_counter import CrashCounter
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Listener, Outcome, Worker
from ablate.runners.execution.machine import Machine, Overseer, RowSource
from ablate.runners.execution.worker_loop import TELL_EVERY_S
from ablate.store.state import State

_LOOK_EVERY_S = 0.2


class _Actor(Listener):
    """A worker in a process of Ray; one of its threads trains, another one hears and tells."""

    def __init__(self, job: RunRequest, number: int) -> None:
        self._worker = Worker(job, number, self, own_process=True)
        self._events: deque[tuple[Any, ...]] = deque()
        self._stopping, self._said_at = False, 0.0

    def process(self) -> int:
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

    def row_stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        if time.monotonic() - self._said_at >= TELL_EVERY_S:
            self._said_at = time.monotonic()
            self._events.append(("row_stepped", row, step, steps, loss))


@final
class Ray(Machine):
    """`workers` processes, by default one per GPU of the cluster, else per core. RAY_ADDRESS names the cluster.

    Unlike `Local`, it does not end trials that stand still.
    """

    name = "ray"

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def run(self, job: RunRequest, rows: RowSource, overseer: Overseer) -> None:
        """Train `rows` in processes of Ray."""
        try:
            import ray
        except ImportError as error:
            raise EnvironmentProblem('--on ray needs Ray; pip install "ablate[ray]"') from error
        handlers = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
        path = os.pathsep.join(filter(None, sys.path))
        ray.init(runtime_env={"env_vars": {"PYTHONPATH": path}}, log_to_driver=False)
        try:
            for name, handler in handlers.items():  # Ray has set its own
                signal.signal(name, handler)
            _Crew(ray, job, rows, overseer, self._workers).run()
        finally:
            ray.shutdown()


@final
class _Crew:
    """The actors of a run, each with the row that it trains."""

    def __init__(self, ray: Any, job: RunRequest, rows: RowSource, overseer: Overseer, workers: int | None) -> None:
        self._ray, self._job, self._rows, self._overseer = ray, job, rows, overseer
        has = ray.cluster_resources()
        self._size = workers or max(1, int(has.get("GPU") or has.get("CPU", 1)))
        needs = {"num_cpus": 1, "num_gpus": 1 if has.get("GPU") else 0}
        self._actors = ray.remote(**needs, max_concurrency=2)(_Actor)
        self._deaths = CrashCounter(job)
        self._at_work: dict[Any, tuple[Any, int, int]] = {}
        """An actor, its process and its row, by the outcome to come."""
        self._idle: list[Any] = []
        self._problem: AblateError | None = None

    def run(self) -> None:
        while True:
            stopping = self._problem is not None or self._overseer.stop_requested()
            while not stopping and len(self._at_work) < self._size and (row := self._rows.take()) is not None:
                self._begin(row)
            if not self._at_work:
                break
            ended, _ = self._ray.wait([*self._at_work], timeout=_LOOK_EVERY_S)
            for actor, *_ in self._at_work.values():
                self._listen(actor, stopping=stopping)
            for outcome in ended:
                self._end(outcome, *self._at_work.pop(outcome))
        if self._problem is not None:
            raise self._problem

    def _begin(self, row: int) -> None:
        try:
            actor = self._idle.pop() if self._idle else self._actors.remote(self._job, self._overseer.worker_number())
            process = self._ray.get(actor.process.remote())
        except self._ray.exceptions.RayActorError as error:
            self._rows.give_back(row)
            self._deaths.at_start(str(error).splitlines()[-1])
        else:
            self._deaths.worker_ready()
            self._at_work[actor.train.remote(row)] = actor, process, row

    def _listen(self, actor: Any, *, stopping: bool) -> None:
        try:
            events = self._ray.get(actor.hear.remote(stopping=stopping))
        except self._ray.exceptions.RayActorError:
            return  # its outcome says so
        for name, *content in events:
            getattr(self._overseer, name)(*content)

    def _end(self, outcome: Any, actor: Any, process: int, row: int) -> None:
        try:
            found: Outcome | None = self._ray.get(outcome)
        except self._ray.exceptions.RayActorError:
            found = self._deaths.at_work(row, process, "its process is gone")
        except AblateError as error:
            self._problem = self._problem or error
            return
        else:
            self._listen(actor, stopping=False)
            self._idle += [] if found is None or found.spent else [actor]
        if found is not None:
            self._overseer.row_ended(found)
        if found is None or (found.spent and found.state == State.STOPPED):
            self._overseer.note(f"process {process} is replaced; its trial goes on from its last checkpoint")
            self._rows.give_back(row)
