"""The fork server as its starter hears it: no end of a worker is overlooked, whenever it is told."""

import os
import signal
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_campaign import toy_grid
from toy_training import ENTRY
from warm import warm_server

from ablate.grid.errors import SpecError
from ablate.runners.attempts.manifest import trial_lines, write_submission
from ablate.runners.attempts.worker import Listener, Outcome, WorkOrder
from ablate.runners.child_lifetime import GROUP_SIGNALS
from ablate.runners.execution import Local, Queue
from ablate.runners.execution.fork_client import Forks, start_interpreter
from ablate.store.files.layout import Layout


class Turns(Listener):
    """An overseer that counts workers and rows."""

    def __init__(self) -> None:
        self.workers = 0
        self.outcomes: list[Outcome] = []

    def worker_number(self) -> int:
        self.workers += 1
        return self.workers

    def row_ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def note(self, text: str) -> None:
        raise AssertionError(text)


def test_a_death_that_is_told_while_a_worker_is_forked_is_not_overlooked() -> None:
    def start(control: socket.socket, _: Sequence[str]) -> Any:
        theirs = control.dup()

        def serve() -> None:
            theirs.sendall(b'{"ready": true}')
            _, descriptors, _, _ = socket.recv_fds(theirs, 4096, 1)
            os.close(descriptors[0])
            theirs.sendall(b'{"exited": 1, "status": 9}')
            theirs.sendall(b'{"forked": 2, "pid": 2}')
            theirs.close()

        thread = threading.Thread(target=serve)
        thread.start()
        return SimpleNamespace(kill=lambda: None, wait=thread.join)

    forks = Forks([], start)
    with forks.fork(2).pipe:
        assert forks.has_exits
        assert [ended.how for ended in forks.exits()] == ["SIGKILL"]
        assert not forks.has_exits
    forks.close()


def test_no_signal_to_the_group_ends_a_fork_server_or_a_worker_at_any_moment() -> None:
    def start(control: socket.socket, preload: Sequence[str]) -> Any:
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


def job_of(root: Path, lines: Iterable[Mapping[str, Any]]) -> WorkOrder:
    write_submission(Layout(root), "20260101T000000-000000", lines)
    return WorkOrder(root, "20260101T000000-000000", ENTRY)


def test_a_trial_that_is_not_what_the_manifest_says_ends_the_run(tmp_path: Path) -> None:
    job = job_of(tmp_path, ({**line, "trial": "ab" * 16} for line in trial_lines(toy_grid(seeds=[0]))))
    with pytest.raises(SpecError, match="code or spec file was edited after the run began"):
        Local(2, start=warm_server).run(job, Queue(range(2)), Turns())
