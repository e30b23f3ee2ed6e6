"""Following a submission: from files, with few questions to the queue, to the exit code of a run on this machine."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm
from toy_campaign import run_quietly, toy_grid

from ablate.grid import Grid
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.slurm.backend import SlurmBackend
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.cli.app import execute
from ablate.runners.cli.machine_flags import SlurmFlags
from ablate.runners.cli.run_on_backend import run_on_backend
from ablate.runners.monitoring.follow import Following
from ablate.runners.monitoring.watch import WatchView
from ablate.store.files.layout import Layout


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read all the time; held jobs are not waited for."""
    monkeypatch.setattr("ablate.runners.monitoring.watch._REST", 0.1)
    monkeypatch.setattr("ablate.runners.monitoring.follow.LOOK_EVERY_S", 0.05)


def follow(root: Path, grid: Grid, meanwhile: Callable[[], object], **options: bool) -> int:
    """Queue a grid, do something, and wait for its trials."""
    request = RunRequest(root, cluster=Slurm(gpus=0, workers=1), **options)

    def views(self: Following, backend: SlurmBackend) -> Iterator[WatchView]:
        meanwhile()
        return plain(self, backend)

    plain = Following.views
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Following, "views", views)
        return run_on_backend("slurm", request, [grid], SlurmFlags(wait=True))


def trains(root: Path, grid: Grid, **options: bool) -> threading.Thread:
    return threading.Thread(target=run_quietly, args=(root, grid), kwargs=options)


def test_it_ends_with_the_last_trial_and_asks_the_queue_once_a_minute(
    tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    root, grid = tmp_path / "campaign", toy_grid(step_s=0.005)
    thread = trains(root, grid)
    assert follow(root, grid, thread.start) == 0
    thread.join()
    said = capsys.readouterr().err
    assert "workers: 1 queued" in said
    assert "6 trained; results in" in said
    assert sum(" -O " in call for call in slurm.calls("squeue")) == 1


def test_failed_trials_are_exit_code_4(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    root, grid = tmp_path / "campaign", Grid("one", toy_grid(fates=["raises"]).base.changed(fate="raises"), seeds=[0])
    for retry in (False, True):  # the second submission waits for a second failure
        thread = trains(root, grid, retry=retry)
        assert follow(root, grid, thread.start, retry=retry) == 4
        thread.join()
        assert "1 failed; results in" in capsys.readouterr().err
        slurm.forget()
    layout = Layout(root)
    assert [layout.attempts(key) for key in layout.trial_keys()] == [[1, 2]]


def test_held_workers_do_not_wait(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(tmp_path / "campaign", toy_grid(), lambda: slurm.hold(1, "JobHeldAdmin")) == 4
    said = capsys.readouterr().err
    assert "6 not finished" in said
    assert "no worker is left for these trials" in said


def test_a_silent_queue_is_waited_for(tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    root, grid = tmp_path / "campaign", toy_grid()
    thread = trains(root, grid)

    def meanwhile() -> None:
        slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
        thread.start()

    assert follow(root, grid, meanwhile) == 0
    thread.join()
    assert "Unable to contact slurm controller" in capsys.readouterr().err


def test_what_was_called_off_is_said_and_no_failure(
    tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody cancels what a shell waits for; the exit code is 0, and 4 once a trial has failed before."""
    for code, fates in ((0, ["ok"]), (4, ["raises", "ok"])):
        root = tmp_path / f"campaign{code}"

        def cancel(root: Path = root, code: int = code) -> None:
            if code:
                run_quietly(root, toy_grid(fates=["raises"]))
            assert execute(["cancel", "--campaign", str(root)]) == 0
            slurm.forget()

        assert follow(root, toy_grid(fates=fates), cancel) == code
        said = capsys.readouterr().err
        assert "cancelled: 6 trials of submission 2" in said
        assert "no worker is left" not in said
    assert execute(["status", "--campaign", str(tmp_path / "campaign0")]) == 0
    said = capsys.readouterr().out
    assert "cancelled: 6 trials of submission 2" in said
    assert "its node cannot write" not in said
