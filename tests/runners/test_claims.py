"""A trial has one owner at a time, whichever hosts, file systems and deaths come between."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from claiming_worker import ABOUT
from synthetic import write_end, write_start
from toy_campaign import toy_grid
from warm import Warm

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.claims import MOST_FRUITLESS, MOST_LOST, Claim, Taken, claim
from ablate.runners.attempts.crash_counter import MOST_DEATHS, CrashCounter
from ablate.runners.attempts.manifest import submission_id, trial_lines, write_submission
from ablate.runners.attempts.micro_batches import micro_batches
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Outcome
from ablate.runners.checkpoint import save_checkpoint
from ablate.runners.execution.fork_client import Exit, Forked
from ablate.runners.execution.machine import Queue
from ablate.runners.execution.pool import WorkerPool, _PoolMember
from ablate.runners.processes.failure import failure_of
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

TRIAL = "ab" * 16
TRIALS = [f"{number:032x}" for number in range(100)]
GONE = {"pid": 2**22 + 1, "pid_started": 1}
OLD, NEW = {"core": "01"}, {"core": "02"}
LATER = {**ABOUT, "submission": "20260909T000000-abcdef", "sources": OLD}


@pytest.fixture
def meet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("meet")


def claim_by_processes(
    layout: Layout, *hosts: str, heartbeat_s: float, until: int | None = None, meet: Path | None = None
) -> list[list[str]]:
    """Let one worker per host claim the trials, then kill it: which each of them got."""
    script = Path(__file__).parent.parent / "claiming_worker.py"
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1] / "src")}
    with ExitStack() as stack:
        workers = []
        for host in hosts:
            command = [sys.executable, str(script), str(layout.root), host, host, str(heartbeat_s)]
            pipe = subprocess.PIPE
            worker = stack.enter_context(Warm(command, env=environment, stdin=pipe, stdout=pipe, text=True))
            stack.callback(worker.kill)
            workers.append(worker)
        assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * len(hosts)
        for worker in workers:
            order = {"trials": TRIALS, "until": until, "meet": meet and str(meet), "of": len(hosts)}
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()
        claims = [json.loads(worker.stdout.readline()) for worker in workers]
    assert {number for numbers in claims for number in numbers.values()} == {until or 1}
    return [list(numbers) for numbers in claims]


@pytest.mark.parametrize("hosts", [("n1", "n2"), ("n1", "n1")], ids=["two hosts", "one host"])
def test_two_processes_share_trials_without_any_twice(layout: Layout, hosts: tuple[str, str], meet: Path) -> None:
    first, second = claim_by_processes(layout, *hosts, heartbeat_s=100, meet=meet)
    assert first
    assert second
    assert sorted([*first, *second]) == TRIALS
    assert all(layout.attempts(trial) == [1] for trial in TRIALS)


def test_the_trials_of_a_dead_host_are_taken_over_once_each(layout: Layout) -> None:
    claim_by_processes(layout, "n1", heartbeat_s=0.05)
    first, second = claim_by_processes(layout, "n2", "n3", heartbeat_s=100, until=2)
    assert sorted([*first, *second]) == TRIALS
    assert all(layout.attempts(trial) == [1, 2] for trial in TRIALS)


def claimed(layout: Layout, **about: Any) -> Claim | Taken:
    return claim(layout, TRIAL, {**ABOUT, **about}, retry=False)


def of_task(job: str, restarts: int) -> dict[str, Any]:
    return {"scheduler": "slurm", "job": job, "restarts": restarts, "node": "n1", "devices": "0"}


def test_a_rename_reported_as_failed_is_a_claim(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Path.rename

    def rename(self: Path, target: Path) -> Path:
        plain(self, target)
        raise FileNotFoundError(2, "No such file or directory")  # as for the second try of a client

    monkeypatch.setattr(Path, "rename", rename)
    mine = claimed(layout)
    assert isinstance(mine, Claim)
    assert mine.number == 1


def test_a_late_listing_does_not_give_a_trial_to_two(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    first = claimed(layout)
    assert isinstance(first, Claim)
    plain, waits = Layout.attempts, []
    monkeypatch.setattr(Layout, "attempts", lambda self, key: plain(self, key) if len(waits) > 2 else [])
    monkeypatch.setattr(time, "sleep", waits.append)
    assert claimed(layout) == Taken("running")
    assert plain(layout, TRIAL) == [1]


def vanish(layout: Layout, *numbers: int, **start: Any) -> None:
    for number in numbers:
        write_start(layout, TRIAL, number, **{**GONE, "sources": OLD, "started": time.time(), **start})


def test_a_trial_that_five_workers_vanished_over_has_failed(layout: Layout) -> None:
    vanish(layout, *range(1, MOST_LOST))
    mine = claimed(layout, sources=OLD)
    assert isinstance(mine, Claim)
    vanish(layout, MOST_LOST)
    assert claimed(layout, sources=OLD) == Taken("failed")
    end = json.loads(layout.end(TRIAL, MOST_LOST + 1).read_bytes())
    assert (end["status"], end["reason"]) == ("failed", "killed")
    assert claimed(layout, sources=OLD) == Taken("failed")
    assert isinstance(claim(layout, TRIAL, LATER, retry=True), Claim)
    vanish(layout, *range(MOST_LOST + 2, 2 * MOST_LOST + 2))
    assert claim(layout, TRIAL, LATER, retry=True) == Taken("failed")  # it does not outweigh those that vanish now
    assert layout.end(TRIAL, 2 * MOST_LOST + 2).exists()


def live(
    layout: Layout, number: int, seconds: float, resumed: dict[str, int] | None, *, ended: bool, beat_s: float = 1
) -> None:
    """Write an attempt of one SLURM task that lasted so long: a life that was stopped, or cut off."""
    place, began = of_task("7_0", number), time.time() - 1000
    vanish(layout, number, started=began, resumed_from=resumed, place=place, checkpoint_s=20.0, heartbeat_s=beat_s)
    if ended:
        write_end(layout, TRIAL, number, status="stopped", wall_s=seconds)
    else:
        os.utime(layout.heartbeat(TRIAL, number), (began + seconds, began + seconds))


@pytest.mark.parametrize(("seconds", "lives"), [(84, 5), (110, 4), (500, 3)])
def test_lives_of_any_length_count_by_their_time(layout: Layout, seconds: float, lives: int) -> None:
    """The time limit of a worker may be shorter than a long life, here 120 s."""
    for number in range(1, lives + 1):
        assert isinstance(claim(layout, TRIAL, LATER, retry=True), Claim)
        live(layout, number, seconds, None, ended=True, beat_s=15)
    assert claim(layout, TRIAL, LATER, retry=True) == Taken("failed")
    message = json.loads(layout.end(TRIAL, lives + 1).read_bytes())["message"]
    assert message.startswith(f"{lives} workers in a row")


@pytest.mark.parametrize("ended", [True, False], ids=["stopped", "cut off"])
@pytest.mark.parametrize("why", ["nothing", "shorter lives", "a checkpoint of the same step", "a failure"])
def test_a_trial_that_saves_nothing_in_three_long_lives_has_failed(layout: Layout, why: str, ended: bool) -> None:
    live(layout, 1, 100, None, ended=ended)
    save_checkpoint(layout.checkpoint(TRIAL, 1), TRIAL, 7, {})
    for number in range(2, 2 + MOST_FRUITLESS):
        live(layout, number, 39 if why == "shorter lives" else 41, {"attempt": 1, "step": 7}, ended=ended)
    if why == "a checkpoint of the same step":
        save_checkpoint(layout.checkpoint(TRIAL, 3), TRIAL, 7, {"answers": [1.0]})
    elif why == "a failure":
        write_end(layout, TRIAL, 3, status="failed")
    found = claim(layout, TRIAL, LATER, retry=True)
    assert isinstance(found, Taken) == (why == "nothing")
    if why == "nothing":
        end = json.loads(layout.end(TRIAL, 2 + MOST_FRUITLESS).read_bytes())
        assert (end["status"], end["reason"], end["step"]) == ("failed", "killed", 7)


@pytest.mark.parametrize("why", ["a checkpoint", "an end", "other code", "a life"])
def test_a_trial_that_got_on_has_not_failed_however_often_its_workers_vanish(layout: Layout, why: str) -> None:
    vanish(layout, *range(1, MOST_LOST + 1))
    if why == "a checkpoint":
        save_checkpoint(layout.checkpoint(TRIAL, 2), TRIAL, 7, {})
    elif why == "an end":
        write_end(layout, TRIAL, 3, status="stopped")
    elif why == "other code":
        vanish(layout, 1, sources=NEW)
    else:
        write_start(layout, TRIAL, MOST_LOST)
        assert claimed(layout, sources=OLD) == Taken("running")
        return
    mine = claimed(layout, sources=OLD)
    assert isinstance(mine, Claim)
    assert mine.number == MOST_LOST + 1


def deaths_over(layout: Layout, **fields: Any) -> tuple[CrashCounter, str]:
    lines = list(trial_lines(toy_grid(seeds=[0])))
    submission = submission_id()
    write_submission(layout, submission, lines)
    return CrashCounter(RunRequest(layout.root, submission, **fields)), lines[0]["trial"]


def dies_over(layout: Layout, trial: str, sources: dict[str, str], step: int | None = None) -> None:
    """An attempt of a process that is gone, after it saved at `step`."""
    number = max(layout.attempts(trial), default=0) + 1
    write_start(layout, trial, number, **GONE, sources=sources)
    if step is not None:
        save_checkpoint(layout.checkpoint(trial, number), trial, step, {})


def test_checkpoints_of_other_code_are_no_reason_to_give_up_on_a_trial_that_gets_on(layout: Layout) -> None:
    deaths, trial = deaths_over(layout)
    dies_over(layout, trial, OLD, 800)
    for step in range(10, 100, 10):
        dies_over(layout, trial, NEW, step)
        assert deaths.at_work(0, GONE["pid"], "SIGKILL") is None
    for _ in range(MOST_DEATHS - 2):
        dies_over(layout, trial, NEW)
        assert deaths.at_work(0, GONE["pid"], "SIGKILL") is None
    dies_over(layout, trial, NEW)
    assert deaths.at_work(0, GONE["pid"], "SIGKILL").state == "failed"


@pytest.mark.parametrize(
    ("how", "counts", "reason"),
    [
        ("SIGKILL", [3, 3, 3, 4], "out_of_memory"),
        ("SIGKILL", [3, 4, 5, 5], "killed"),
        ("SIGSEGV", [3, 4, 5, 6], "killed"),
        ("SIGKILL", [None, None, None, None], "killed"),
        ("SIGKILL", [None, 4, None, 5], "killed"),
    ],
)
def test_a_kill_by_the_system_for_want_of_memory_is_out_of_memory(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, how: str, counts: list[int | None], reason: str
) -> None:
    told = iter(counts)
    monkeypatch.setattr(
        "ablate.runners.attempts.crash_counter.oom_kills", lambda: next(told) if how == "SIGKILL" else 0
    )
    deaths, trial = deaths_over(layout)
    for _ in range(MOST_DEATHS):
        dies_over(layout, trial, NEW)
        outcome = deaths.at_work(0, GONE["pid"], how)
    assert outcome.failure.reason == reason
    assert trial_state(layout, trial).state == "failed"


@pytest.mark.parametrize(
    ("kills", "claimed", "ends"), [([3, 4], True, "out_of_memory"), ([3, 3], True, None), ([3, 4], False, None)]
)
def test_a_trial_that_was_killed_for_memory_is_cut_if_asked(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, kills: list[int], *, claimed: bool, ends: str | None
) -> None:
    told = iter(kills)
    monkeypatch.setattr("ablate.runners.attempts.crash_counter.oom_kills", lambda: next(told))
    deaths, trial = deaths_over(layout, oom="halve")
    if claimed:
        write_start(layout, trial, 1, **GONE, accumulate=2)
    assert deaths.at_work(0, GONE["pid"], "SIGKILL") is None
    state = trial_state(layout, trial)
    assert [found.end and found.end["reason"] for found in state.attempts] == ([ends] if claimed else [])
    assert micro_batches(state, 1) == (4 if ends else 2 if claimed else 1)


@pytest.mark.parametrize("jobs", [["12_4"] * 5, ["12_0", "12_1", "12_2", "12_5", "12_4"], [None] * 5], ids=str)
def test_lives_that_a_task_came_back_from_do_not_fail_a_trial(layout: Layout, jobs: list[str | None]) -> None:
    """A task that was started again is no lost worker; a process that died within a life is one."""
    for life in range(2 * MOST_LOST):
        vanish(layout, life + 1, place=of_task("12_3", life))
    assert isinstance(claimed(layout, sources=OLD, place=of_task("12_3", 2 * MOST_LOST)), Claim)
    for number, job in enumerate(jobs, start=2 * MOST_LOST + 1):
        vanish(layout, number, place=job and of_task(job, 0))
    assert claimed(layout, sources=OLD, place=of_task("99_0", 2)) == Taken("failed")


def test_a_claim_of_a_file_system_that_does_not_answer_says_so(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    vanish(layout, *range(1, MOST_LOST + 1))
    monkeypatch.setattr("ablate.store.files.atomic.PAUSES_S", (0,))
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", stale)
        with pytest.raises(EnvironmentProblem, match="Stale file handle"):
            claimed(layout, sources=OLD)
    plain = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: stale(path) if "checkpoint" in str(path) else plain(path))
    monkeypatch.setattr(os, "listdir", stale)
    with pytest.raises(EnvironmentProblem, match="Stale file handle"):
        claimed(layout, sources=OLD)


@pytest.mark.parametrize("told", ["cut", "ended", None])
def test_a_killed_rank_is_not_the_next_death(layout: Layout, monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    """The worker lives, has recorded it, and goes on with the same row or another."""
    kills = [3]
    monkeypatch.setattr("ablate.runners.attempts.crash_counter.oom_kills", lambda: kills[0])
    deaths, trial = deaths_over(layout, oom="halve")
    overseer = SimpleNamespace(row_started=lambda *_: None, row_ended=lambda _: None, note=lambda _: None)
    pool = WorkerPool(deaths._job, Queue([]), overseer, None, [None])  # type: ignore[arg-type]
    member = _PoolMember(Forked(0, GONE["pid"], None), 0)  # type: ignore[arg-type]
    pool._understand(member, "started", [0, 1, 0])
    kills[0] = 4
    if told == "cut":
        pool._understand(member, "started", [0, 2, 0])
    elif told == "ended":
        pool._understand(member, "ended", [Outcome(0, "failed", 1, failure_of(MemoryError()))])
    write_start(layout, trial, 1, **GONE, accumulate=1)
    pool._died(member, 0, Exit(GONE["pid"], signal.SIGKILL))
    assert layout.end(trial, 1).exists() == (told is None)
