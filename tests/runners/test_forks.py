"""The fork server as its starter hears it: no end of a worker is overlooked, whenever it is told."""

import json
import os
import signal
import socket
import threading
from collections.abc import Sequence
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import toy_grid
from toy_training import ENTRY

from grid.errors import SpecError
from runners.attempts.manifest import trial_lines, write_submission
from runners.attempts.worker import Job, Outcome
from runners.child_lifetime import GROUP_SIGNALS
from runners.execution import Local, Queue
from runners.execution.fork_client import Forks, ServerProcess, start_interpreter
from store.files.layout import Layout

MOST_TURNS = 40


class Turns:
    """An overseer that counts how often the machine looks around."""

    def __init__(self) -> None:
        self.turns = self.workers = 0
        self.outcomes: list[Outcome] = []
        self.notes: list[str] = []

    def stop_requested(self) -> bool:
        self.turns += 1
        assert self.turns < MOST_TURNS, f"the machine waits for a worker that is dead; {self.notes}"
        return False

    def worker_number(self) -> int:
        self.workers += 1
        return self.workers

    def row_started(self, row: int, worker: int, attempt: int, step: int) -> None: ...

    def row_stepped(self, row: int, step: int, steps: int, loss: float) -> None: ...

    def row_ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def note(self, text: str) -> None:
        self.notes.append(text)


def _death(pid: int) -> dict[str, Any]:
    return {"exited": pid, "status": int(signal.SIGKILL)}


def _handed_a_row(pipe: "Connection[Any, Any]") -> int:
    assert pipe.recv()[0] == "load"
    pipe.send(("ready",))
    kind, row, _ = pipe.recv()
    assert kind == "row"
    return int(row)


class TwoDieAtOnce(threading.Thread):
    """A fork server whose second worker dies while a successor of the first is being forked."""

    def __init__(self, control: socket.socket, _: Sequence[str]) -> None:
        super().__init__()
        self._control = control.dup()
        self.start()

    def kill(self) -> None: ...

    def wait(self) -> int:
        self.join()
        self._control.close()
        return 0

    def run(self) -> None:
        self._say({"ready": True})
        lost = [self._forked(pid) for pid in (1, 2)]
        for pipe in lost:
            _handed_a_row(pipe)
        self._say(_death(1))
        successors = [self._forked(3, _death(2)), self._forked(4)]
        rows = [_handed_a_row(pipe) for pipe in successors]
        for pid, pipe, row in zip((3, 4), successors, rows, strict=True):
            pipe.send(("ended", Outcome(row, "ok", 1)))
            assert pipe.recv() == ("stop",)
            self._say({"exited": pid, "status": 0})
        for pipe in (*lost, *successors):
            pipe.close()

    def _say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self._control.sendall(json.dumps(message).encode())

    def _forked(self, pid: int, *first: dict[str, Any]) -> "Connection[Any, Any]":
        """Answer one request; the messages `first` come before the answer."""
        request, descriptors, _, _ = socket.recv_fds(self._control, 4096, 1)
        if not request:
            raise SystemExit  # the starter has hung up
        self._say(*first, {"forked": pid, "pid": pid})
        return Connection(descriptors[0])


def test_a_worker_that_dies_while_another_is_forked_is_replaced_at_once(tmp_path: Path) -> None:
    lines = list(trial_lines(toy_grid(seeds=[0])))
    write_submission(Layout(tmp_path), "20260101T000000-000000", lines)
    overseer = Turns()
    Local(2, start=TwoDieAtOnce).run(Job(tmp_path, "20260101T000000-000000"), Queue(range(2)), overseer)
    assert sorted(outcome.row for outcome in overseer.outcomes) == [0, 1]
    assert [note.split(";")[0] for note in overseer.notes] == [f"worker {number} died (SIGKILL)" for number in (1, 2)]


def test_no_signal_to_the_group_ends_a_fork_server_or_a_worker_at_any_moment() -> None:
    def start(control: socket.socket, preload: Sequence[str]) -> ServerProcess:
        process = start_interpreter(control, preload)
        for name in GROUP_SIGNALS:
            os.kill(process.pid, name)
        return process

    forks = Forks(["pyarrow.parquet"], start)
    try:
        forked = [forks.fork(number) for number in range(3)]
        for worker, name in zip(forked, repeat(signal.SIGUSR2), strict=False):
            os.kill(worker.pid, name)
            worker.pipe.send(("stop",))
        ends: list[str] = []
        while len(ends) < 3:
            ends += [ended.how for ended in forks.exits()]
        assert ends == ["exit status 0"] * 3
    finally:
        forks.close()


def test_a_trial_that_is_not_what_the_manifest_says_ends_the_run(tmp_path: Path) -> None:
    lines = [{**line, "trial": "ab" * 16} for line in trial_lines(toy_grid(seeds=[0]))]
    write_submission(Layout(tmp_path), "20260101T000000-000000", lines)
    job = Job(tmp_path, "20260101T000000-000000", ENTRY)
    with pytest.raises(SpecError, match="code or spec file was edited after the run began"):
        Local(2).run(job, Queue(range(2)), Turns())


def test_a_machine_that_grows_while_it_runs_trains_more_at_a_time(tmp_path: Path) -> None:
    machine, overseer, at_once = Local(1), Turns(), []

    def start_row(*_: object) -> None:
        if machine.workers == 1:
            machine.grow([None])
        started.append(None)
        at_once.append(len(started) - len(overseer.outcomes))

    started: list[None] = []
    overseer.row_started = start_row
    overseer.stop_requested = lambda: False
    lines = list(trial_lines(toy_grid(seeds=range(3), step_s=0.05)))
    write_submission(Layout(tmp_path), "20260101T000000-000000", lines)
    machine.run(Job(tmp_path, "20260101T000000-000000", ENTRY), Queue(range(6)), overseer)
    assert sorted(outcome.row for outcome in overseer.outcomes) == list(range(6))
    assert (max(at_once), overseer.workers) == (2, 2)
