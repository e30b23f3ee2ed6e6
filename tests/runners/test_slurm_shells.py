"""Shells that submit to one campaign from several login nodes, some of which are cut off."""

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm, pretended
from toy_campaign import toy_grid
from toy_training import ENTRY

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.submission_record import job_name, read_submission_record, write_submission_record
from ablate.runners.slurm.scheduler import SlurmScheduler as Scheduler, release
from ablate.runners.slurm.spec import Slurm
from ablate.runners.slurm.submit import already_queued, job_arrays
from ablate.runners.slurm.submit.already_queued import let_go
from ablate.runners.slurm.submit.job_arrays import Arrays
from ablate.runners.slurm.submit.submit import Drafter, SubmitOptions, SubmittedJobs, submit
from ablate.runners.slurm.submit.submit_lock import submit_lock
from ablate.store.files.layout import Layout

ASKED = Slurm(gpus=0, time="1h", workers=12)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendSlurm:
    """Arrays of five at most, so that twelve workers are three of them."""
    return pretended(tmp_path, monkeypatch, max_array=5)


def queue(root: Path) -> SubmittedJobs:
    grid = toy_grid(seeds=range(10))
    return submit(Drafter(root, [grid], ASKED, Scheduler(), SubmitOptions(entry=ENTRY)), lambda _: None)


def during_sbatch(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call `act` with the number of the array while sbatch is at it, after it has queued it."""
    calls = count(1)
    real = Arrays.submit_held

    def submit_held(self: Arrays, script: str) -> int:
        job = real(self, script)
        act(next(calls))
        return job

    monkeypatch.setattr(Arrays, "submit_held", submit_held)


@pytest.mark.parametrize("moment", [1, 3, "release"])
def test_what_another_shell_took_back_is_not_released(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch, moment: int | str
) -> None:
    """It takes back before the jobs of the last sbatch are in the queue, so it does not cancel those."""
    layout = Layout(tmp_path / "campaign")

    def take_back(now: bool) -> None:
        if now:
            shutil.rmtree(layout.submission(layout.submission_ids()[0]))

    def write(layout: Layout, found: Any) -> None:
        write_submission_record(layout, found)
        take_back(moment == "release" and len(found.jobs) == 3)

    during_sbatch(monkeypatch, lambda number: take_back(number == moment))
    monkeypatch.setattr("ablate.runners.slurm.submit.submit.write_submission_record", write)
    with pytest.raises(EnvironmentProblem, match="was taken back while it was being queued"):
        queue(layout.root)
    assert slurm.jobs() == {}
    assert int((slurm.place / "last").read_text()) == (1 if moment == 1 else 3)  # calls of sbatch
    assert slurm.calls("scontrol release") == []
    assert layout.submission_ids() == []


def test_cancelled_jobs_are_no_submission(tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.runners.slurm.submit.submit.release", lambda job: release(job) and job != 2)
    with pytest.raises(EnvironmentProblem, match=r"job 2 of submission .* was cancelled while it was being queued"):
        queue(tmp_path / "campaign")
    assert slurm.jobs() == {}
    assert Layout(tmp_path / "campaign").submission_ids() == []


def test_each_sbatch_has_a_record_before(tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody takes a shell for dead that waits for a busy controller; one sbatch is waited for."""
    layout = Layout(tmp_path / "campaign")
    written, ended = [], []

    def act(number: int) -> None:
        written.append(read_submission_record(layout, layout.submission_ids()[0]).written)
        ended.append(time.time())

    during_sbatch(monkeypatch, act)
    queue(layout.root)
    assert len(slurm.jobs()) == 3
    assert written[1] >= ended[0]
    assert written[2] >= ended[1]
    assert job_arrays._PATIENCE_S < already_queued._ABANDONED_S


@pytest.mark.parametrize("error", [KeyboardInterrupt, EnvironmentProblem], ids=["Ctrl-C", "full disk"])
def test_an_interrupt_or_a_full_disk_while_jobs_are_queued_takes_them_back(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupt(number: int) -> None:
        if number == 2:
            raise error

    during_sbatch(monkeypatch, interrupt)
    with pytest.raises(error):
        queue(tmp_path / "campaign")
    assert slurm.jobs() == {}
    assert not (slurm.place / "released").exists()
    assert Layout(tmp_path / "campaign").submission_ids() == []


def test_a_second_shell_waits_for_the_lock(tmp_path: Path) -> None:
    waits, events = threading.Event(), list[str]()

    def tell(text: str) -> None:
        events.append(text)
        waits.set()

    def second() -> None:
        with submit_lock(Layout(tmp_path), tell):
            events.append("locked")

    with submit_lock(Layout(tmp_path), pytest.fail):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(60)
        events.append("released")
    thread.join()
    told = "another shell is submitting to this campaign, or cancels; waiting for it"
    assert events == [told, "released", "locked"]


@pytest.mark.parametrize("called_off", [False, True])
def test_what_was_called_off_while_held_stays_held(tmp_path: Path, slurm: PretendSlurm, called_off: bool) -> None:
    layout = Layout(tmp_path / "campaign")
    record = queue(layout.root).record
    write_submission_record(layout, replace(record, released=False, host="login2", pid=1, pid_started=1))
    for job in slurm.jobs():
        slurm.hold(job, "JobHeldUser")
    if called_off:
        path = layout.submission(record.submission) / "cancelled.json"
        path.write_text('{"schema": 1, "all": true, "trials": []}')
    let_go(layout, Scheduler())
    assert slurm.held_jobs() == ([1, 2, 3] if called_off else [])
    assert job_name(record.submission) in slurm.jobs()[1]
