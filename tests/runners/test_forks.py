"""The fork server and its workers: no end is overlooked, whenever it is told, and who is orphaned leaves."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_campaign import toy_grid
from warm import Warm, warm_server

from ablate.grid.errors import SpecError
from ablate.runners.attempts.manifest import trial_lines, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Listener, Outcome
from ablate.runners.child_lifetime import GROUP_SIGNALS
from ablate.runners.execution import Local, Queue
from ablate.runners.execution.fork_client import Forks, start_interpreter
from ablate.runners.execution.worker_loop import TENSORS_OF_DEVICE, _limit_memory
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


def job_of(root: Path, lines: Iterable[Mapping[str, Any]]) -> RunRequest:
    write_submission(Layout(root), "20260101T000000-000000", lines)
    return RunRequest(root, "20260101T000000-000000")


def test_a_trial_that_is_not_what_the_manifest_says_ends_the_run(tmp_path: Path) -> None:
    job = job_of(tmp_path, ({**line, "trial": "ab" * 16} for line in trial_lines(toy_grid(seeds=[0]))))
    with pytest.raises(SpecError, match="code or spec file was edited after the run began"):
        Local(2, start=warm_server).run(job, Queue(range(2)), Turns())


ORPHAN = """
from multiprocessing.connection import Pipe
from ablate.runners.execution.worker_loop import _Control, work
ours, theirs = Pipe()
{before}
ours.close()
control = _Control(theirs)
{doing}
raise SystemExit("goes on")
"""
UNHEARD = "theirs.send('not heard'); ours.send(('row', 1))"


@pytest.mark.parametrize(
    ("before", "doing"),
    [
        ("", "control.row_started(0, 1, 0)"),
        ("", "work(theirs)"),
        (UNHEARD, "control.next(); control.next()"),
    ],
)
def test_a_worker_that_nobody_listens_to_leaves_without_a_word(before: str, doing: str) -> None:
    script = ORPHAN.format(before=before, doing=doing)
    pipe = subprocess.PIPE
    with Warm([sys.executable, "-P", "-c", script], stdout=pipe, stderr=pipe, text=True) as worker:
        assert worker.communicate() == ("", "")
    assert worker.returncode == 1


def test_workers_that_share_a_device_have_equal_parts_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    for share in (1.0, 0.5, 0.25):
        _limit_memory(share)
    assert limits == [TENSORS_OF_DEVICE / 2, TENSORS_OF_DEVICE / 4]  # one alone has all there is
