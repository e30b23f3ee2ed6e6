"""Worker tasks on nodes: every trial once, whatever signals come; each reason to leave has its exit status."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from slurm_node import Sent, end_of, own_host_names, plain, send, to_the_end
from synthetic import write_start
from toy_campaign import run_quietly, tables, toy_grid
from waiting import wait_until

from ablate.grid.errors import NotFoundError
from ablate.runners.attempts.worker_records import WorkerRecord, cancelled_path, write_worker
from ablate.runners.backends.slurm.worker.assignment import Arguments
from ablate.runners.backends.slurm.worker.exit_codes import ExitCode
from ablate.runners.backends.slurm.worker.signals import SignalState
from ablate.runners.backends.slurm.worker.supervisor import _Supervisor, _wait_for_assignment
from ablate.store.files.atomic import write_json
from ablate.store.files.trial_state import TrialState, process_started, trial_state

WARM = {"preload": ("torch", "pyarrow.parquet")}
GRID: dict[str, Any] = {"seeds": [0, 1, 2], "steps": 40, "fate_at": 100}
SLOW: dict[str, Any] = {**GRID, "step_s": 0.02, "checkpoint_s": 0.05}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("undisturbed")
    assert run_quietly(root, toy_grid(**GRID)).done == 6
    return plain(tables(root))


def states(sent: Sent) -> list[TrialState]:
    return [trial_state(sent.layout, key) for key in sent.layout.trial_keys()]


def until(found: Callable[[], Any], process: "subprocess.Popen[str]") -> Any:
    """Wait for a true value of `found` and return it; the task must not end before."""
    while not (value := found()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.03)
    return value


def live(sent: Sent) -> list[dict[str, Any]]:
    return [state.live.start for state in states(sent) if state.live is not None]


def reasons(sent: Sent) -> list[str | None]:
    return [record.left for record in sent.records()]


def test_a_record_that_appears_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = send(tmp_path, toy_grid(**GRID))
    arguments, signals = Arguments(str(tmp_path), sent.submission, 0, 0), SignalState()
    record = sent.layout.submission_record(sent.submission)
    hidden, looks = record.rename(record.with_name("hidden")), list[float]()

    def appear(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            hidden.rename(record)

    monkeypatch.setattr(time, "sleep", appear)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert _wait_for_assignment(arguments, signals).record.submission == sent.submission
    assert len(looks) == 3
    record.unlink()
    signals.note(signal.SIGTERM, None)
    with pytest.raises(NotFoundError):
        _wait_for_assignment(arguments, signals)


def test_two_nodes_train_every_trial_once(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    go = tmp_path / "go"
    sent = send(tmp_path / "campaign", toy_grid(**GRID, held=str(go)), workers=2)
    tasks = [sent.start(0, fresh=True), sent.start(1)]
    until(lambda: len(live(sent)) == 2, tasks[0])
    go.touch()
    assert [end_of(task)[0] for task in tasks] == [0, 0]
    assert plain(tables(sent.root)) == undisturbed
    assert [len(state.attempts) for state in states(sent)] == [1] * 6
    starts = [state.attempts[0].start for state in states(sent)]
    places = {(start["place"]["node"], start["place"]["job"], start["worker"] // 1_000_000) for start in starts}
    assert places == {("n0", "100_0", 0), ("n1", "100_1", 1)}
    if own_host_names():
        assert {start["host"] for start in starts} == {"n0", "n1"}
    assert reasons(sent) == ["done", "done"]
    assert sum(record.ok for record in sent.records()) == 6


def test_a_task_says_what_happens_and_keeps_its_record(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(seeds=[0], fates=["ok", "raises"]))
    status, out, err = end_of(sent.start())
    assert (status, err) == (86, "")
    assert [out.count(words) for words in ("attempt 1  begins", "attempt 1  done after", "failed after")] == [4, 2, 2]
    assert out.count("error: ValueError: seed 0 met its fate") == 2
    (record,) = sent.records()
    assert (record.ok, record.failed, record.stopped, record.left) == (2, 2, 0, "done")
    assert (record.job, record.node, record.worker, record.restarts) == ("100_0", "n0", 0, 0)
    assert 0 < record.seconds < 120
    assert all(key[:8] in out for key in sent.layout.trial_keys())


def test_usr2_at_any_moment_saves_and_asks_to_be_queued_again(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """From the start of the process on, while it imports, and while trials run; to it alone or to its whole group."""
    chance = random.Random("usr2")
    sent = send(tmp_path, toy_grid(**SLOW), job=WARM, resources={"per_gpu": 2})
    moments = [0.0, 0.2, *(chance.uniform(0.0, 0.3) for _ in range(3))]
    resumed = 0
    for number, moment in enumerate(moments):
        early = number < 2
        task = sent.start(fresh=early)
        if not early:
            until(lambda: live(sent), task)
        time.sleep(moment)
        (os.killpg if number % 2 else os.kill)(task.pid, signal.SIGUSR2)
        status, out, err = end_of(task)
        unfinished = any(state.state != "done" for state in states(sent)) or len(states(sent)) < 6
        assert status == (85 if unfinished else 0), (moment, out, err)
        assert all(found.end is not None for state in states(sent) for found in state.attempts)
        assert "died" not in out + err
        assert reasons(sent)[-1] == ("time" if unfinished else "done")
        resumed += sum(map(_went_on, states(sent)))
    to_the_end(sent)
    assert plain(tables(tmp_path)) == undisturbed
    assert resumed > 0


def test_signals_that_never_end_do_not_change_how_a_task_ends(tmp_path: Path) -> None:
    """One every millisecond until the process is gone: also while its interpreter shuts down."""
    sent = send(tmp_path, toy_grid(seeds=[0]))
    task = sent.start(fresh=True)
    while task.poll() is None:
        task.send_signal(signal.SIGUSR2)
        time.sleep(0.001)
    status, out, err = end_of(task)
    assert (status, err, reasons(sent)) == (85, "", ["time"]), out


def _went_on(state: TrialState) -> bool:
    """Whether the latest attempt began where the one before had stopped; anything else is lost work."""
    if len(state.attempts) < 2:
        return False
    before, last = state.attempts[-2:]
    expected = {"attempt": before.attempt, "step": before.end["step"]}
    assert last.start["resumed_from"] == expected
    return True


def test_whatever_is_killed_the_tables_are_those_of_a_calm_run(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """Supervisors, fork servers and workers of two nodes get KILL, TERM and USR2 until all is done."""
    chance = random.Random("kill")
    sent = send(tmp_path, toy_grid(**SLOW), workers=2, job=WARM)
    tasks = {worker: sent.start(worker) for worker in (0, 1)}
    hits = 0
    over = set[int]()
    while len(over) < 2:
        time.sleep(chance.uniform(0.05, 0.4))
        worker = chance.choice([0, 1])
        if worker in over:
            worker = 1 - worker
        task = tasks[worker]
        if task.poll() is None and hits < 10 and live(sent):
            name = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2])
            with suppress(ProcessLookupError):
                os.kill(chance.choice(_group(task.pid) or [task.pid]), name)
                hits += 1
        if task.poll() is not None:
            out, err = task.communicate()
            if task.returncode in (0, 86):
                over.add(worker)
            else:
                known = task.returncode in (85, -9) or (task.returncode == 1 and "starts workers died" in out)
                assert known, f"{task.returncode}\n{out}\n{err}"
                tasks[worker] = sent.start(worker)
    assert hits == 10 or all(state.state == "done" for state in states(sent))
    assert {state.state for state in states(sent)} == {"done"}
    assert plain(tables(tmp_path)) == undisturbed
    oks = [sum((found.end or {}).get("status") == "ok" for found in state.attempts) for state in states(sent)]
    assert oks == [1] * 6


def _group(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getpgid(int(path.name)) == leader and process_started(int(path.name)) is not None:
                found.append(int(path.name))
    return found


def test_a_trial_whose_node_died_is_taken_over_by_the_other(tmp_path: Path) -> None:
    if not own_host_names():
        pytest.skip("needs host names of its own: a dead process of this host is seen at once")
    sent = send(tmp_path, toy_grid(seeds=[0], steps=200, fate_at=300, step_s=0.02, checkpoint_s=0.05), workers=2)
    first = sent.start(0)
    until(lambda: live(sent), first)
    second = sent.start(1)
    until(lambda: len(live(sent)) == 2, second)
    os.killpg(first.pid, signal.SIGKILL)
    end_of(first)
    status, out, err = end_of(second)
    assert (status, err) == (0, ""), out
    assert {state.state for state in states(sent)} == {"done"}
    (taken,) = [state for state in states(sent) if len(state.attempts) == 2]
    assert [found.start["host"] for found in taken.attempts] == ["n0", "n1"]


def test_an_environment_or_a_spec_that_differs_is_refused_before_any_work(tmp_path: Path) -> None:
    from ablate.runners.provenance.environment import record

    recorded = record()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"environment": {**recorded, "python": "3.9.2"}}, "3.9.2"),
        ({"job": {"files": ["/nowhere/spec.py"]}}, "there is no spec file /nowhere/spec.py"),
        ({"job": {"preload": ["no_such_module"]}}, "No module named 'no_such_module'"),
    ]
    for number, (change, said) in enumerate(wrong):
        sent = send(tmp_path / str(number), toy_grid(), **change)
        status, out, err = end_of(sent.start())
        assert status == 87
        assert said in err
        assert "begins" not in out
        assert not list(sent.layout.trial_keys())
        (found,) = sent.records()
        assert found.left == "refused"
        assert said in str(found.says)
    assert end_of(send(tmp_path, toy_grid(), environment=recorded).start())[0] == 0


def test_what_nobody_foresaw_ends_with_a_traceback_and_in_the_record(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid())
    sent.layout.manifest_index(sent.submission).write_bytes(b"torn")
    status, _, err = end_of(sent.start())
    assert (status, "Traceback" in err) == (1, True)
    (record,) = sent.records()
    assert record.left == "error"
    assert "was torn or altered" in str(record.says)
    status, _, err = end_of(replace(sent, submission="20200101T000000-abcdef", restarts={}).start())
    assert (status, "Traceback" in err) == (1, False)
    assert "there is no" in err


def test_a_task_that_was_called_off_stops_is_not_queued_again_and_has_not_failed(tmp_path: Path) -> None:
    grid = toy_grid(**{**SLOW, "seeds": [0], "steps": 10_000, "fate_at": 3}, fates=("raises", "ok"))
    sent = send(tmp_path, grid, job=WARM, resources={"per_gpu": 4})
    task = sent.start()
    until(lambda: "failed" in {state.state for state in states(sent)} and live(sent), task)
    write_json(cancelled_path(sent.layout, sent.submission), {"schema": 1, "all": True, "trials": []})
    status, out, err = end_of(task)
    assert (status, err, reasons(sent), sent.records()[0].failed > 0) == (0, "", ["cancelled"], True), out
    begun = [state.attempts for state in states(sent)]
    assert {found[-1].end and found[-1].end["status"] for found in begun} == {"stopped", "failed"}
    assert end_of(sent.start())[0] == 0
    assert [state.attempts for state in states(sent)] == begun


def test_no_two_worker_processes_of_a_submission_have_one_number() -> None:
    """By class, worker, life of the task and how many it has started: files in the spool are named so."""
    numbers = []
    for resource_class, worker, restarts in product((0, 1, 20), (0, 1, 999), (0, 1, 999)):
        task = _Supervisor.__new__(_Supervisor)
        about = {"task": SimpleNamespace(resource_class=resource_class), "place": SimpleNamespace(restarts=restarts)}
        task._assignment, task._forks = SimpleNamespace(worker=worker, **about), 0
        task._replaced = 0
        numbers += [task.worker_number() for _ in range(3)]
    assert len(set(numbers)) == len(numbers) == 81


def test_trials_called_off_stop_and_the_others_go_on(tmp_path: Path) -> None:
    go = tmp_path / "go"
    sent = send(tmp_path / "campaign", toy_grid(**{**GRID, "seeds": [0]}, held=str(go)), job=WARM)
    task = sent.start()
    (start,) = until(lambda: live(sent), task)
    off = {"schema": 1, "all": False, "trials": [start["trial"]]}
    write_json(cancelled_path(sent.layout, sent.submission), off)
    until(lambda: trial_state(sent.layout, start["trial"]).attempts[0].end, task)
    go.touch()
    status, out, err = end_of(task)
    assert (status, err, reasons(sent)) == (0, "", ["done"]), out
    assert trial_state(sent.layout, start["trial"]).state == "stopped"
    assert sorted(state.state for state in states(sent)) == ["done", "stopped"]


@pytest.mark.parametrize("signalled", [False, True])
def test_nothing_is_begun_when_the_time_left_is_too_short(tmp_path: Path, signalled: bool) -> None:
    sent = send(tmp_path, toy_grid(), resources={"time": 1}, slurm={"signal_s": 59})
    task = sent.start(SLURM_JOB_END_TIME=str(int(time.time()) + 58))
    if signalled:
        task.send_signal(signal.SIGUSR2)
    status, out, err = end_of(task)
    assert (status, reasons(sent)) == (ExitCode.LATE, ["late"]), out
    assert "begins" not in out
    assert "so nothing was begun; ask for more --time, or see whether the clock of n0 is right" in err


def test_a_worker_that_waited_for_the_rows_of_others_all_its_time_is_queued_again(tmp_path: Path) -> None:
    """It had time to begin in, and nothing to begin: whoever has the trials may be at work."""
    grid = toy_grid(seeds=[0])
    sent = send(tmp_path / "campaign", grid)
    for planned in grid.trials():
        write_start(sent.layout, planned.key, 1, host="away", pid=1, heartbeat_s=100.0)
        sent.layout.heartbeat(planned.key, 1).write_text("{}")
    looks = tmp_path / "looks"
    looks.touch()
    task = sent.start(TIME=str(tmp_path))
    until(lambda: looks.stat().st_size > 3, task)  # it looks three times before it first waits
    (tmp_path / "over").touch()
    task.send_signal(signal.SIGUSR2)
    status, out, _ = end_of(task)
    assert (status, reasons(sent)) == (85, ["time"]), out


def test_a_used_up_budget_ends_the_taking_of_rows(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(), budget={"hours": 2.0, "unit": "cpuh"})
    write_worker(sent.layout, WorkerRecord(sent.submission, 0, 7, 0, "1", "n7", "n7", 1, 1.0, 2.0, 7200.0, 0, 1))
    status, out, _ = end_of(sent.start())
    assert status == 0
    assert "begins" not in out
    assert reasons(sent)[0] == "budget"


def test_trials_side_by_side_have_their_devices(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(step_s=0.2, trained_by="slurm_node:see"), resources={"gpus": 2, "per_gpu": 1})
    assert end_of(sent.start(CUDA_VISIBLE_DEVICES="4,7"))[0] == 0
    starts = [state.attempts[0].start for state in states(sent)]
    devices = {start["trial"]: start["place"]["devices"] for start in starts}
    metrics = tables(tmp_path)["metric"]
    assert devices == {trial: str(round(value)) for trial, _, name, value in metrics if name == "device"}
    assert set(devices.values()) == {"4", "7"}
    (record,) = sent.records()
    assert (record.gpus, record.slots) == (2, 2)
    marks = (sent.layout.submission(sent.submission) / "done").iterdir()
    assert {int(path.name) for path in marks} == set(range(len(starts)))  # which it tells the others


def test_no_process_is_left_of_a_task_that_was_killed(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(**{**SLOW, "steps": 10_000, "fate_at": 20_000}))
    task = sent.start()
    (start,) = until(lambda: live(sent), task)
    os.kill(task.pid, signal.SIGKILL)
    task.communicate()
    wait_until(lambda: process_started(start["pid"]) is None and not _group(task.pid))
    assert json.loads(sent.layout.start(start["trial"], 1).read_bytes())["place"]["restarts"] == 0
