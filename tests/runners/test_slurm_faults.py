"""Nodes that are not as they should be cost a submission neither its trials nor its neighbours' work."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import toy_faults
from slurm_node import end_of, send
from toy_campaign import run_quietly, toy_grid
from warm import warm_server

from ablate.grid import Grid, over
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.disk_space import disk_problem
from ablate.runners.attempts.worker import Outcome
from ablate.runners.attempts.worker_records import WorkerRecord
from ablate.runners.backends.slurm.worker.exit_codes import ExitCode
from ablate.runners.backends.slurm.worker.node_health import MOST_FAILURES, NodeHealth, only_node
from ablate.runners.backends.slurm.worker.signals import SignalState
from ablate.runners.execution import Inline, Local
from ablate.runners.processes.failure import Failure, breaks_process
from ablate.store.files.atomic import environment_problem
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import TrialState, trial_state

WARM = ("torch", "pyarrow.parquet")
BLIND = ("torch", "pretend_cuda", "pyarrow.parquet")


def states(layout: Layout) -> list[TrialState]:
    return [trial_state(layout, key) for key in layout.trial_keys()]


def ends(layout: Layout, status: str) -> list[dict[str, Any]]:
    found = [attempt.end for state in states(layout) for attempt in state.attempts]
    return [end for end in found if end is not None and end["status"] == status]


def test_a_node_that_lacks_something_refuses_and_fails_no_trial(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(seeds=range(4), trained_by="toy_faults:lacking"), workers=2)
    status, _, err = end_of(sent.start(0, LACKING="yes"))
    assert (status, err) == (87, "cannot read /data/text: No such file or directory\n")
    (record,) = sent.records()
    assert (record.left, record.says, record.failed) == ("refused", err.strip(), 0)
    assert [end["message"] for end in ends(sent.layout, "stopped")] == [record.says]
    assert end_of(sent.start(1))[0] == 0
    assert [state.state for state in states(sent.layout)] == ["done"] * 8


@pytest.mark.parametrize("machine", [Inline(), Local(2, start=warm_server)], ids=["inline", "local"])
def test_a_run_that_lacks_something_fails_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Any) -> None:
    grid = toy_grid(seeds=[0], trained_by="toy_faults:lacking")
    with monkeypatch.context() as patch:
        patch.setenv("LACKING", "yes")
        with pytest.raises(EnvironmentProblem, match="cannot read /data/text"):
            run_quietly(tmp_path, grid, machine)
    assert {state.state for state in states(Layout(tmp_path))} == {"stopped"}
    assert run_quietly(tmp_path, grid, machine).done == 2


def test_a_node_on_which_everything_fails_leaves_the_rows_to_others(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(seeds=range(10), trained_by="toy_faults:broken"), workers=2)
    status, _, err = end_of(sent.start(0, BROKEN="yes"))
    assert status == 87
    assert "3 trials in a row failed on n0 and none was trained" in err
    assert end_of(sent.start(1))[0] == 0
    assert len(ends(sent.layout, "failed")) == 3
    assert len(ends(sent.layout, "ok")) == 17


def test_trials_that_all_raise_are_all_tried_once_two_nodes_agree(tmp_path: Path) -> None:
    sent = send(tmp_path / "eight", toy_grid(seeds=range(4), fates=["raises"]))
    assert end_of(sent.start(0, host="n0"))[0] == 87
    assert len(ends(sent.layout, "failed")) == 3
    assert end_of(sent.start(0, host="n1"))[0] == 86
    assert len(ends(sent.layout, "failed")) == 8
    last = send(tmp_path / "three", Grid("three", toy_grid().base, [over("fate", ["raises"])], seeds=range(3)))
    assert end_of(last.start())[0] == 86  # nothing is left for other nodes
    assert len(ends(last.layout, "failed")) == 3


def test_a_process_that_cuda_refuses_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = send(tmp_path / "node", toy_grid(seeds=range(10), trained_by="toy_faults:poisoning"))
    status, out, _ = end_of(sent.start())
    assert status == 86
    (record,) = sent.records()
    assert (record.ok, record.failed) == (18, 2)
    assert "died" not in out
    assert len({state.attempts[0].start["worker"] for state in states(sent.layout)}) in (2, 3)
    monkeypatch.setattr(toy_faults, "_poisoned", False)
    with pytest.raises(EnvironmentProblem, match="CUDA refuses this process"):
        run_quietly(tmp_path / "here", toy_grid(seeds=range(4), trained_by="toy_faults:poisoning"), Inline())
    assert len(ends(Layout(tmp_path / "here"), "failed")) == 1


def test_a_worker_that_sees_no_gpu_refuses_unless_torch_is_a_build_for_the_cpu(tmp_path: Path) -> None:
    sent = send(tmp_path / "blind", toy_grid(seeds=[0]), job={"preload": BLIND}, resources={"gpus": 1})
    status, _, err = end_of(sent.start(CUDA_VISIBLE_DEVICES="0"))
    assert (status, err) == (87, "1 GPU was asked for and torch sees none on n0\n")
    assert not states(sent.layout)
    sent = send(tmp_path / "cpu", toy_grid(seeds=[0]), job={"preload": WARM}, resources={"gpus": 1})
    status, out, _ = end_of(sent.start(CUDA_VISIBLE_DEVICES="0"))
    assert status == 0
    assert out.count("torch is a build for the CPU") == 1


def test_a_worker_that_does_not_leave_is_not_waited_for_beyond_its_time(tmp_path: Path) -> None:
    grid = toy_grid(seeds=[0], steps=40, step_s=0.05, fate_at=100, trained_by="toy_faults:hanging")
    sent = send(tmp_path, grid, job={"preload": WARM}, resources={"per_gpu": 2}, slurm={"signal_s": 6})
    task = sent.start(HANGING="yes")
    while sum(state.live is not None for state in states(sent.layout)) < 2:
        time.sleep(0.03)
    task.send_signal(signal.SIGUSR2)
    status, _, err = end_of(task)
    assert (status, err) == (85, "")
    (record,) = sent.records()
    assert record.left == "time"
    assert record.says == "1 trial did not save in time; the next worker goes on from what was saved before"
    assert len(ends(sent.layout, "stopped")) == 1
    assert end_of(sent.start())[0] == 0
    assert [state.state for state in states(sent.layout)] == ["done", "done"]


@pytest.mark.parametrize(
    ("name", "signal_s", "patient_s"), [("SIGUSR2", 120, 96), ("SIGUSR2", 4, 2), ("SIGTERM", 600, 20)]
)
def test_time_is_left_to_tell(monkeypatch: pytest.MonkeyPatch, name: str, signal_s: float, patient_s: float) -> None:
    heard = SignalState()
    assert not heard.is_overdue(signal_s)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    heard.note(getattr(signal, name), None)
    for seconds, overdue in ((patient_s - 0.1, False), (patient_s + 0.1, True)):
        monkeypatch.setattr(time, "monotonic", lambda seconds=seconds: 100.0 + seconds)
        assert heard.is_overdue(signal_s) == overdue


def test_a_slot_that_cannot_write_lets_its_neighbours_save(tmp_path: Path) -> None:
    grid = toy_grid(seeds=[0], steps=2000, step_s=0.02, fate_at=5000, trained_by="toy_faults:unwritable")
    sent = send(tmp_path / "campaign", grid, job={"preload": WARM}, resources={"per_gpu": 2})
    status, out, _ = end_of(sent.start(MEETING=str(tmp_path / "meeting")))
    assert status == 1, out
    (record,) = sent.records()
    assert (record.left, record.stopped) == ("error", 1)
    assert "Stale file handle" in str(record.says)
    (saved,) = ends(sent.layout, "stopped")
    assert 0 < saved["step"] < 2000
    assert list(sent.layout.checkpoint(saved["trial"], 1).glob("*.pt"))


def test_a_full_disk_is_told_apart_from_a_death_and_the_worker_goes_on_when_there_is_room(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(seeds=[0], trained_by="toy_faults:full"))
    status, out, _ = end_of(sent.start(FULL="yes"))
    assert status == ExitCode.FULL, out
    (record,) = sent.records()
    assert record.left == "full"
    assert f"the campaign's disk is full ({tmp_path}: " in str(record.says)
    assert end_of(sent.start())[0] == 0
    assert [state.state for state in states(sent.layout)] == ["done", "done"]


def test_a_disk_is_full_or_an_error_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, quota = (environment_problem("write", tmp_path / "x", OSError(n, os.strerror(n))) for n in (28, 122))
    assert disk_problem(tmp_path) is None
    assert "free; " not in str(disk_problem(tmp_path, quota))
    assert "your quota is used up" in str(disk_problem(tmp_path, quota))
    assert disk_problem(tmp_path, full) is not None
    assert disk_problem(tmp_path / "other", full) is None  # the full disk is another one
    plain = os.statvfs(tmp_path)
    for changed in ({"f_bavail": 3}, {"f_favail": 0}):
        fields = {name: getattr(plain, name) for name in ("f_bavail", "f_frsize", "f_favail", "f_files")} | changed
        monkeypatch.setattr(os, "statvfs", lambda _, fields=fields: SimpleNamespace(**fields))
        assert "the campaign's disk is full" in str(disk_problem(tmp_path))


def test_a_file_system_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    sent = send(tmp_path, toy_grid(seeds=[0], trained_by="toy_faults:away"))
    status, out, _ = end_of(sent.start())
    assert status == 0, out
    assert "[Errno 116] Stale file handle" in out
    assert [state.state for state in states(sent.layout)] == ["done", "done"]


STARTS = """
import os
from pathlib import Path
loads = Path(os.environ["LOADS"])
found = loads.read_text()
loads.write_text(found[1:])
if found[:1] == "x":
    os._exit(7)
"""


def test_deaths_at_the_start_count_only_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, loads, deaths = tmp_path / "spec.py", tmp_path / "loads", tmp_path / "deaths"
    spec.write_text(STARTS)
    loads.write_text("xx.xx.")
    deaths.write_text("x")
    monkeypatch.setenv("LOADS", str(loads))
    grid = toy_grid(seeds=[0], fates=["dies"], deaths=str(deaths))
    assert run_quietly(tmp_path / "campaign", grid, Local(1, start=warm_server), files=(spec,)).done == 2
    assert (loads.read_text(), deaths.read_text()) == ("", "")
    loads.write_text("xxx")
    with pytest.raises(EnvironmentProblem, match="workers die as they start"):
        run_quietly(tmp_path / "other", toy_grid(seeds=[0]), Local(1, start=warm_server), files=(spec,))


MINE = WorkerRecord("20260101T000000-000000", 0, 0, 1, "7_0", "n0", "n0", 5, 1.0, 2.0, 3.0, gpus=1, slots=1)
OTHER = replace(MINE, worker=1, node="n1")


def fail(row: int, fingerprint: str = "f", reason: str = "error") -> Outcome:
    return Outcome(row, "failed", 1, Failure(reason, "it broke", None, fingerprint))


def verdict(records: list[WorkerRecord], outcomes: list[Outcome], *, alone: bool = False) -> str | None:
    doubts = NodeHealth(MINE, lambda: records, lambda: alone)
    said = [doubts.came_back(outcome) for outcome in outcomes]
    return next((each for each in said if each is not None), None)


FAILING = [fail(row) for row in range(MOST_FAILURES)]


@pytest.mark.parametrize(
    ("records", "refuses"),
    [
        ([MINE, replace(OTHER, failures=("g",))], True),
        ([replace(OTHER, failures=("f",))], False),
        ([replace(OTHER, ok=5)], True),
        ([replace(OTHER, ok=5, failures=("f",))], False),
        ([replace(OTHER, ok=5), replace(OTHER, restarts=2, failures=("f",))], False),  # lives of one worker
        ([replace(OTHER, ok=5), replace(OTHER, worker=2, node="n2", failures=("f",))], True),  # n2 is as bad as this
        ([replace(MINE, worker=4, failures=("f",))], True),  # on this very node
        ([replace(MINE, worker=4, ok=9)], True),  # another device of this node is well
        ([replace(MINE, worker=4, ok=9, failures=("f",))], False),
        ([replace(MINE, restarts=0, ok=9)], False),  # it has trained well here
    ],
)
def test_failures_that_good_nodes_meet_too_are_the_trials_own(records: list[WorkerRecord], refuses: bool) -> None:
    assert (verdict(records, FAILING) is not None) == refuses


def test_a_node_is_refused_for_failures_in_a_row_that_say_something_of_it() -> None:
    def refuses(outcomes: list[Outcome], *records: WorkerRecord, alone: bool = False) -> bool:
        return verdict(list(records), outcomes, alone=alone) is not None

    assert not refuses([Outcome(9, "done", 1), *FAILING])  # it has trained a trial
    assert not refuses(FAILING[:-1])
    for reason, expected in (("diverged", False), ("out_of_memory", False), ("killed", True)):
        assert refuses([fail(row, reason=reason) for row in range(9)]) == expected
    assert not refuses([Outcome(row, "failed") for row in range(9)])
    met = replace(OTHER, ok=1, failures=("f",))
    mine = [fail(row, "mine") for row in range(MOST_FAILURES)]  # count beside failures that others have met
    assert not refuses([*FAILING, *mine[:-1]], met)
    assert refuses([*FAILING, *mine], met)
    assert not refuses(FAILING, MINE, alone=True)  # nothing can be compared with the only node
    assert refuses(FAILING, replace(MINE, worker=4, ok=9), alone=True)


@pytest.mark.parametrize(
    ("requested", "runs_in", "is_only"),
    [(None, "gpu", True), (None, "old", False), ("gpu", "gpu", True), ("gpu,old", "gpu", False), (None, "none", False)],
)
def test_the_nodes_of_all_requested_partitions_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requested: str | None, runs_in: str, is_only: bool
) -> None:
    program = tmp_path / "sinfo"
    cases = "*=gpu,old*) echo n1; echo n2 ;; *=gpu*) echo n1; echo n1 ;; *=old*) echo n1; echo n2 ;; *=none*) ;;"
    program.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert only_node(requested, {"SLURM_JOB_PARTITION": runs_in}) == is_only
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert not only_node(None, {})


@pytest.mark.parametrize(
    ("error", "breaks"),
    [
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm"), True),
        (RuntimeError("Triton Error [CUDA]: unspecified launch failure"), True),
        (type("AcceleratorError", (RuntimeError,), {})("unspecified"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), False),
        (RuntimeError("shapes do not match"), False),
        (ValueError("CUDA error: this is a text"), False),
    ],
)
def test_an_error_of_cuda_spends_the_process_and_want_of_memory_does_not(error: Exception, breaks: bool) -> None:
    assert breaks_process(error) == breaks
    wrapped = ValueError("while training")
    wrapped.__cause__ = error
    assert breaks_process(wrapped) == breaks
