import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import write_end, write_start

from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import (
    heartbeat_age,
    local_process,
    pid_space,
    process_alive,
    process_started,
    trial_state,
)

KEY = "ab" * 16
GONE = {"pid": 2**22 + 1, "pid_started": 1}
ELSEWHERE = {"host": "another host", "pid": os.getpid()}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def age(layout: Layout, attempt: int, seconds: float) -> None:
    path = layout.heartbeat(KEY, attempt)
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_a_live_process_runs_and_its_death_leaves_the_trial_lost(layout: Layout) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    write_start(layout, KEY, 1, pid=child.pid, pid_started=process_started(child.pid))
    state = trial_state(layout, KEY)
    assert state.state == "running"
    assert state.live is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert trial_state(layout, KEY).state == "lost"  # a zombie is dead
    child.communicate()
    assert trial_state(layout, KEY).state == "lost"


def test_a_process_number_that_is_used_again_is_another_process() -> None:
    started = process_started(os.getpid())
    assert started is not None
    assert process_alive(os.getpid(), started)
    assert process_alive(os.getpid(), None)
    assert not process_alive(os.getpid(), started - 1)
    assert not process_alive(GONE["pid"], None)


def test_an_attempt_on_another_host_lives_while_its_heartbeat_is_young(layout: Layout) -> None:
    write_start(layout, KEY, 1, **ELSEWHERE)
    assert trial_state(layout, KEY).state == "running"
    age(layout, 1, 60)
    assert trial_state(layout, KEY).state == "running"
    age(layout, 1, 60)
    assert trial_state(layout, KEY).state == "lost"
    found = heartbeat_age(layout, KEY, 1)
    assert found is not None
    assert found > 100
    layout.heartbeat(KEY, 1).unlink()
    assert heartbeat_age(layout, KEY, 1) is None
    assert trial_state(layout, KEY).state == "lost"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (["failed"], "failed"),
        (["stopped"], "stopped"),
        (["stopped", "failed"], "failed"),
        (["failed", "stopped"], "stopped"),
        (["failed", None], "failed"),
        (["stopped", None], "lost"),
    ],
)
def test_the_latest_attempt_that_ended_decides(layout: Layout, ends: list[str | None], expected: str) -> None:
    for attempt, end in enumerate(ends, start=1):
        write_start(layout, KEY, attempt, **GONE)
        if end is not None:
            write_end(layout, KEY, attempt, status=end)
    state = trial_state(layout, KEY)
    assert state.state == expected
    assert state.ended is not None


def test_a_torn_end_is_no_end_and_a_torn_start_no_attempt(layout: Layout) -> None:
    write_start(layout, KEY, 1, **GONE)
    write_end(layout, KEY, 1)
    layout.end(KEY, 1).write_bytes(layout.end(KEY, 1).read_bytes()[:30])
    assert trial_state(layout, KEY).state == "lost"
    layout.start(KEY, 1).write_bytes(b"{")
    assert trial_state(layout, KEY).attempts == ()


def test_a_process_of_another_container_or_boot_is_not_looked_for_here(layout: Layout) -> None:
    assert pid_space() not in (None, "unknown")
    for space, young in (("another", True), ("unknown", True), (pid_space(), False), (None, False)):
        write_start(layout, KEY, 1, **GONE, pid_space=space)
        assert (trial_state(layout, KEY).state == "running") == young
        age(layout, 1, 200)
        assert trial_state(layout, KEY).state == "lost"
    write_start(layout, KEY, 1, pid_space="another")  # the number of a process that lives is no sign of life there
    age(layout, 1, 200)
    assert trial_state(layout, KEY).state == "lost"


def test_process_numbers_that_this_process_is_not_shown_under_name_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = pid_space()
    assert ours is not None
    assert ours.endswith(str(Path("/proc/self/ns/pid").stat().st_ino))
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a PID namespace that sees the /proc of its node
    assert pid_space.__wrapped__() == "unknown"
    about = {"host": socket.gethostname(), "pid": os.getppid()}
    assert local_process({**about, "pid_space": ours}) is True
    monkeypatch.setattr("ablate.store.files.trial_state.pid_space", lambda: "unknown")
    assert local_process({**about, "pid_space": "unknown"}) is None
    assert local_process({**about, "pid_space": ours}) is None
    assert local_process(about) is True
