"""Following a submission: from files, with few questions to the queue, to the exit code of a run on this machine."""

import threading
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm
from toy_campaign import run_quietly, toy_grid
from toy_training import ENTRY

from grid import Grid
from runners.cli.app import execute
from runners.cli.options import SlurmFlags
from runners.cli.run import report_outcome
from runners.cli.run_on_slurm import show_or_queue
from runners.execution.progress import ProgressDisplay
from runners.slurm.follow import Following
from runners.slurm.scheduler import SlurmScheduler as Scheduler
from runners.slurm.spec import Slurm
from runners.slurm.submit.submit import Drafter, SubmitOptions, SubmittedJobs, submit


class Submitted:
    """Toys in the queue, which somebody else may train meanwhile."""

    def __init__(self, root: Path, grid: Grid, **options: bool) -> None:
        chosen = SubmitOptions(entry=ENTRY, **options)
        self.drafter = Drafter(root, [grid], Slurm(gpus=0, workers=1), Scheduler(), chosen)
        self.queued: SubmittedJobs = submit(self.drafter, lambda _: None)
        names = [self.queued.record.submission]
        self.following = Following(self.drafter.survey, self.queued.draft.wanted, names, Scheduler())

    def follow(self, ask_every_s: float = 60.0) -> int:
        self.following.until_over(look_every_s=0.05, ask_every_s=ask_every_s)
        return report_outcome(self.following.result(self.drafter.survey, None), self.drafter.layout.root)


def test_it_ends_with_the_last_trial_and_asks_the_queue_once_a_minute(tmp_path: Path, slurm: PretendSlurm) -> None:
    root, grid = tmp_path / "campaign", toy_grid(step_s=0.005)
    submitted = Submitted(root, grid)
    before = len(slurm.calls("squeue"))
    thread = threading.Thread(target=run_quietly, args=(root, grid))
    thread.start()
    assert submitted.follow() == 0
    thread.join()
    assert submitted.following.result(submitted.drafter.survey, None).ok == 6
    assert len(slurm.calls("squeue")) == before + 1


def test_failed_trials_are_exit_code_4(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    root, grid = tmp_path / "campaign", Grid("one", toy_grid(fates=["raises"]).base.changed(fate="raises"), seeds=[0])
    submitted = Submitted(root, grid)
    run_quietly(root, grid)
    capsys.readouterr()
    assert submitted.follow() == 4
    assert "1 failed; results in" in capsys.readouterr().err
    slurm.forget()
    submitted = Submitted(root, grid, retry=True)
    thread = threading.Thread(target=run_quietly, args=(root, grid), kwargs={"retry": True})
    thread.start()
    assert submitted.follow() == 4
    thread.join()
    layout = submitted.drafter.layout
    assert [layout.attempts(key) for key in layout.trial_keys()] == [[1, 2]]


def test_held_workers_do_not_wait(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    submitted = Submitted(tmp_path / "campaign", toy_grid())
    slurm.hold(1, "JobHeldAdmin")
    before = len(slurm.calls("squeue"))
    assert submitted.follow(ask_every_s=0.1) == 4
    assert len(slurm.calls("squeue")) == before + 2  # right after a release, the queue may still show a job as held
    said = capsys.readouterr().err
    assert "held (JobHeldAdmin); `scontrol release 1` lets them go, which takes an administrator" in said
    slurm.forget()  # no worker is left
    assert submitted.follow(ask_every_s=0.1) == 4
    assert submitted.following.result(submitted.drafter.survey, None).stopped == 6


def test_a_silent_queue_is_waited_for(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    root, grid = tmp_path / "campaign", toy_grid()
    submitted = Submitted(root, grid)
    slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    thread = threading.Timer(1.0, run_quietly, args=(root, grid))
    thread.start()
    assert submitted.follow(ask_every_s=0.1) == 0
    thread.join()
    assert "Unable to contact slurm controller" in capsys.readouterr().err


def test_what_was_called_off_is_said_and_no_failure(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody cancels what a shell waits for; the exit code is 0, and 4 once a trial has failed before."""
    until_over = Following.until_over
    for number, fates in enumerate((["ok"], ["raises", "ok"])):
        root, grid = tmp_path / f"campaign{number}", toy_grid(fates=fates)
        drafter = Drafter(root, [grid], Slurm(gpus=0, workers=1), Scheduler(), SubmitOptions(entry=ENTRY))

        def cancel_first(self: Following, root: Path = root, number: int = number) -> None:
            if number:
                run_quietly(root, toy_grid(fates=["raises"]))
            assert execute(["cancel", "--campaign", str(root)]) == 0
            slurm.forget()
            until_over(self, look_every_s=0.05, ask_every_s=0.1)

        with monkeypatch.context() as patch:
            patch.setattr(Following, "until_over", cancel_first)
            assert show_or_queue(drafter, root, SlurmFlags(wait=True)) == (4 if number else 0)
        said = capsys.readouterr().err
        assert "cancelled: 6 trials of submission 2" in said
        assert "`ablate run` goes on with them" in said
        assert "no worker is left" not in said
    assert execute(["status", "--campaign", str(tmp_path / "campaign0")]) == 0
    said = capsys.readouterr().out
    assert "cancelled: 6 trials of submission 2" in said
    assert "its node cannot write" not in said


def test_it_says_what_workers_wait_for(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    submitted = Submitted(tmp_path / "campaign", toy_grid())
    asked = iter([True, False])

    class Once(Following):  # final for others
        def _has_workers(self, shown: ProgressDisplay) -> bool:
            assert super()._has_workers(shown)
            return next(asked)

    submitted.following.__class__ = Once
    submitted.follow(ask_every_s=0.1)
    assert "0 running · workers: 1 pending (Priority) · ? left" in capsys.readouterr().err
