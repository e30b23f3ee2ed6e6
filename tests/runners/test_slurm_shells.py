"""Shells that submit to one campaign: cut off, refused half-way, or two at a time."""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm, pretended
from toy_campaign import toy_grid

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.attempts.submit_lock import submit_lock
from ablate.runners.attempts.worker_records import read_cancelled
from ablate.runners.backends.backend import Submissions
from ablate.runners.backends.slurm.scheduler import SlurmScheduler as Scheduler
from ablate.runners.backends.slurm.spec import Needs, Slurm
from ablate.runners.backends.slurm.submit.draft import Drafter
from ablate.runners.backends.slurm.submit.job_arrays import Arrays
from ablate.runners.backends.slurm.submit.submit import SubmittedJobs, submit
from ablate.store.files.layout import Layout

ASKED = Slurm(gpus=0, time="1h", workers=12)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendSlurm:
    """Arrays of five at most, so that twelve workers are three of them."""
    return pretended(tmp_path, monkeypatch, max_array=5)


def queue(root: Path, slurm: Slurm = ASKED) -> SubmittedJobs:
    grid = toy_grid(seeds=range(10))
    return submit(Drafter(RunRequest(root), [grid], slurm, Scheduler()), lambda _: None)


def around_sbatch(patch: pytest.MonkeyPatch, act: Callable[[int], object], *, before: bool = False) -> None:
    """Call `act` with the number of the array before sbatch is called, or after it has queued the array."""
    calls = count(1)
    real = Arrays.queue

    def called(self: Arrays, script: str) -> int:
        number = next(calls)
        if before:
            act(number)
        job = real(self, script)
        if not before:
            act(number)
        return job

    patch.setattr(Arrays, "queue", called)


def queue_and_die(root: Path, moment: int, slurm: Slurm = ASKED) -> str:
    """A shell that is killed after sbatch has queued array `moment`, before its number is written; 0: before the first.

    Returns the submission.
    """
    shell = os.fork()
    if shell == 0:
        with contextlib.suppress(BaseException), pytest.MonkeyPatch.context() as patch:
            around_sbatch(patch, lambda number: number > max(0, moment - 1) and os._exit(9), before=moment == 0)
            queue(root, slurm)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1]) == 9
    return Layout(root).submission_ids()[-1]


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_workers_of_a_shell_that_was_killed_are_found_by_the_name_of_their_job(
    tmp_path: Path, slurm: PretendSlurm, moment: int
) -> None:
    root, layout = tmp_path / "campaign", Layout(tmp_path / "campaign")
    killed = queue_and_die(root, moment)
    assert len(slurm.jobs()) == moment
    assert len(read_submission_record(layout, killed).jobs) == moment - 1
    slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(EnvironmentProblem, match="could be queued twice"):
        queue(root)
    slurm.works("squeue")
    ((status,), _) = Submissions().list(layout)
    assert {job.partition("_")[0] for job in status.jobs} == {str(job) for job in slurm.jobs()}
    assert queue(root).record is None  # these workers take every trial of the class
    assert len(slurm.jobs()) == moment
    slurm.forget()
    assert queue(root).draft.trials == 20


def test_what_a_killed_shell_did_not_queue_is_queued_by_the_next(tmp_path: Path, slurm: PretendSlurm) -> None:
    root = tmp_path / "campaign"
    queue_and_die(root, 0)
    assert slurm.jobs() == {}
    assert queue(root).draft.trials == 20
    slurm.forget()
    classes = ASKED.changed(workers=2, needs=(Needs(where={"operator": "rising"}, mem="4G"),))
    queue_and_die(root, 1, classes)
    found = queue(root, classes)
    assert (found.draft.trials, len(slurm.jobs())) == (10, 2)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, EnvironmentProblem], ids=["Ctrl-C", "full disk"])
def test_an_interrupt_or_a_full_disk_while_jobs_are_queued_takes_them_back(
    tmp_path: Path, slurm: PretendSlurm, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], begun: bool
) -> None:
    """The jobs are not held: a worker may have begun, and its files stay."""
    layout = Layout(tmp_path / "campaign")

    def interrupt(number: int) -> None:
        if begun:
            (layout.submission(layout.submission_ids()[0]) / "workers").mkdir(exist_ok=True)
        if number == 2:
            raise error

    with monkeypatch.context() as patch:
        around_sbatch(patch, interrupt)
        with pytest.raises(error):
            queue(layout.root)
    assert slurm.jobs() == {}
    assert len(layout.submission_ids()) == begun
    assert queue(layout.root).draft.trials == 20


def test_jobs_that_cannot_be_taken_back_train_nothing(tmp_path: Path, slurm: PretendSlurm) -> None:
    layout = Layout(tmp_path / "campaign")
    slurm.says("refuse_2", "sbatch: error: Socket timed out")
    slurm.says("scancel", "scancel: error: Unable to contact slurm controller")
    with pytest.raises(EnvironmentProblem):
        queue(layout.root)
    (refused,) = layout.submission_ids()
    assert read_cancelled(layout, refused).all
    assert list(slurm.jobs()) == [1]
    assert queue(layout.root).draft.trials == 20


def test_a_record_of_a_release_that_held_jobs_is_read(tmp_path: Path, slurm: PretendSlurm) -> None:
    """It was cut off before the release of its jobs, which stay held; their trials are queued anew."""
    layout = Layout(tmp_path / "campaign")
    record = queue(layout.root).record
    assert record is not None
    path = layout.submission_record(record.submission)
    path.write_text(json.dumps({**json.loads(path.read_text()), "released": False}))
    assert read_submission_record(layout, record.submission).jobs == record.jobs
    for job in slurm.jobs():
        slurm.hold(job, "JobHeldUser")
    found = queue(layout.root)
    assert found.draft.trials == 20
    assert slurm.held_jobs() == [1, 2, 3]


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
