"""Calling work off: first the file, then the queue; exactly what was meant; a run on this machine by its process."""

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from submission_files import FIRST, RUNS, SECOND, WAITS, Scripted, submit
from synthetic import Campaign, write_campaign, write_end, write_start

from ablate.runners.attempts.submission_record import Array
from ablate.runners.attempts.worker_records import CalledOff, read_cancelled
from ablate.runners.backends.slurm.backend import SlurmBackend
from ablate.runners.backends.slurm.scheduler import QueueStatus, TaskStatus
from ablate.runners.backends.slurm.submit.already_queued import queued_elsewhere
from ablate.runners.cli.app import execute
from ablate.runners.monitoring.cancel import Cancelling
from ablate.runners.monitoring.trial_locations import locate_trials
from ablate.store.files.atomic import make_directory, read_json, write_json
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import process_started
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.store import Store

SSA = [("SSA", seed) for seed in range(6)]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(6), pending=set(SSA))


class Queue:
    """Keeps what it was told to cancel, and whether the file was there by then."""

    def __init__(self, layout: Layout, problem: str | None = None) -> None:
        self._layout = layout
        self._problem = problem
        self.told: list[tuple[list[int], bool]] = []

    def cancel(self, jobs: Sequence[int]) -> str | None:
        self.told.append((list(jobs), read_cancelled(self._layout, FIRST).all))
        return self._problem


class Cancelled:
    """A `Cancelling` that knows where the trials are."""

    def __init__(self, campaign: Campaign, tasks: dict[str, TaskStatus] | None, queue: Queue | None = None) -> None:
        with Store.open(campaign.root) as store:
            self.where = locate_trials(store, Scripted() if tasks is None else Scripted(tasks))
        queue = queue or Queue(campaign.layout)
        self._cancelling = Cancelling(campaign.layout, self.where.submissions, self.where.runs, SlurmBackend(queue))
        self.done, self.problems = self._cancelling.done, self._cancelling.problems
        self.cancel_submissions = self._cancelling.cancel_submissions

    def trials(self, keys: Sequence[str]) -> None:
        self._cancelling.trials(keys, self.where)


def keys(campaign: Campaign, *seeds: int) -> list[str]:
    return [str(campaign.line("SSA", seed)["trial"]) for seed in seeds]


def test_everything_is_the_file_first_and_then_the_jobs(campaign: Campaign) -> None:
    submit(campaign, SSA[:4], classes=[(4, [Array(0, 2, 7), Array(2, 1, 9), Array(3, 1, 11)])])
    queue = Queue(campaign.layout)
    first, late = (Cancelled(campaign, {"7_0": RUNS, "9_0": WAITS}, queue) for _ in range(2))
    first.cancel_submissions()
    assert queue.told == [([7, 9], True)]
    fates = "trials of 1 running worker save their state, 1 waiting worker left the queue"
    assert (first.done, first.problems) == ([f"submission {FIRST} is cancelled: {fates}"], [])
    for tasks in ({"7_0": RUNS}, {}):
        again = Cancelled(campaign, tasks, queue)
        again.cancel_submissions()
        again.trials(keys(campaign, 0))
        assert (again.done, again.problems, len(queue.told)) == ([], [], 1)
    late.trials(keys(campaign, 2))  # it has read what was there before
    assert read_cancelled(campaign.layout, FIRST).all


def test_some_trials_are_called_off_in_every_submission_that_has_them(campaign: Campaign) -> None:
    submit(campaign, SSA[:4])
    submit(campaign, SSA[3:], submission=SECOND, classes=[(3, [Array(0, 1, 8)])])
    queue = Queue(campaign.layout)
    tasks = {"7_0": RUNS, "8_0": WAITS}
    Cancelled(campaign, tasks, queue).trials(keys(campaign, 1, 3))
    assert read_cancelled(campaign.layout, FIRST).trials == set(keys(campaign, 1, 3))
    assert read_cancelled(campaign.layout, SECOND).trials == set(keys(campaign, 3))
    Cancelled(campaign, tasks, queue).trials(keys(campaign, 0, 5))
    assert read_cancelled(campaign.layout, FIRST).trials == set(keys(campaign, 0, 1, 3))  # earlier entries stay
    assert queue.told == []
    again = Cancelled(campaign, tasks, queue)
    again.trials(keys(campaign, 0, 1))
    assert again.done == []  # it was done before


def test_a_submission_without_a_trial_left_is_called_off_as_a_whole(campaign: Campaign) -> None:
    submit(campaign, SSA[:3])
    done, *left = keys(campaign, 0, 1, 2)
    write_start(campaign.layout, done, 1)
    write_end(campaign.layout, done, 1)
    queue = Queue(campaign.layout)
    Cancelled(campaign, {"7_0": RUNS}, queue).trials(left[:1])
    assert not read_cancelled(campaign.layout, FIRST).all
    Cancelled(campaign, {"7_0": RUNS}, queue).trials(left)
    assert queue.told == [([7], True)]


def test_a_queue_that_cannot_be_told_is_said_with_what_does_it(campaign: Campaign) -> None:
    submit(campaign, SSA)
    call = Cancelled(campaign, None, Queue(campaign.layout, "the controller is away"))
    call.cancel_submissions()
    assert read_cancelled(campaign.layout, FIRST).all
    assert call.done == []
    assert "`scancel 7` does that" in call.problems[0]


def test_a_run_that_has_not_begun_a_trial_is_asked_to_stop(campaign: Campaign) -> None:
    with subprocess.Popen(["sleep", "600"]) as run:
        try:
            about = {"host": socket.gethostname(), "pid": run.pid, "pid_started": process_started(run.pid)}
            submit(campaign, SSA[:2], machine="local", **about)
            call = Cancelled(campaign, None)
            call.trials(keys(campaign, 5))
            assert (call.done, call.problems) == ([], [])
            call.trials(keys(campaign, 1))
            assert "can only be stopped as a whole" in call.problems[0]
            assert run.poll() is None
            call.cancel_submissions()
            assert f"(process {run.pid}) was asked to stop" in call.done[0]
            assert run.wait() == -signal.SIGTERM
        finally:
            run.kill()


@pytest.mark.parametrize("second", ["everything", "another"])
def test_two_calls_at_once_are_both_kept(campaign: Campaign, monkeypatch: pytest.MonkeyPatch, second: str) -> None:
    """The second comes when the first has read what was cancelled before, and has written nothing yet."""
    submit(campaign, SSA[:4])
    first, other = (Cancelled(campaign, {"7_0": RUNS}) for _ in range(2))
    one, two = keys(campaign, 0), keys(campaign, 1)
    then = threading.Thread(target=other.cancel_submissions if second == "everything" else lambda: other.trials(two))
    waits = threading.Event()
    monkeypatch.setattr("ablate.runners.monitoring.cancel.say", lambda _: waits.set())

    def slow(layout: Layout, submission: str) -> CalledOff:
        found = read_cancelled(layout, submission)
        if threading.current_thread() is not then and not then.is_alive():
            then.start()
            while then.is_alive() and not waits.is_set():
                time.sleep(0.01)
        return found

    monkeypatch.setattr("ablate.runners.monitoring.cancel.read_cancelled", slow)
    first.trials(one)
    then.join()
    assert read_cancelled(campaign.layout, FIRST).trials >= {*one, *(two if second == "another" else ())}
    assert read_cancelled(campaign.layout, FIRST).all == (second == "everything")


class _Slow(Scripted):
    """Keeps which submissions were cancelled in their files when the queue was asked, which may take long."""

    layout: Layout

    def read_queue(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        self.seen = getattr(self, "seen", [])
        self.seen.append([name for name in (FIRST, SECOND) if read_cancelled(self.layout, name).all])
        return super().read_queue(jobs, names)


def test_everything_is_called_off_without_the_database(
    campaign: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is damaged, and an ingest is under way: neither matters."""
    submit(campaign, SSA[:4])
    submit(campaign, SSA[4:], submission=SECOND, classes=[(2, [Array(0, 2, 8)])])
    make_directory(campaign.layout.store)
    campaign.layout.live.write_bytes(b"no database")
    queue = Queue(campaign.layout)
    scheduler = _Slow({"7_0": RUNS, "8_0": WAITS})
    scheduler.cancel, scheduler.layout = queue.cancel, campaign.layout
    monkeypatch.setattr("ablate.runners.backends.slurm.queue.SlurmScheduler", lambda: scheduler)
    where = ["--campaign", str(campaign.root)]
    with ingest_lock(campaign.layout, wait=False) as held:
        assert held
        assert execute(["cancel", f"submission={SECOND}", *where]) == 0
        assert [read_cancelled(campaign.layout, each).all for each in (FIRST, SECOND)] == [False, True]
        assert execute(["cancel", *where]) == 0
    assert read_cancelled(campaign.layout, FIRST).all
    assert [jobs for jobs, _ in queue.told] == [[8], [7]]
    assert scheduler.seen == [[SECOND], [FIRST, SECOND]]
    assert execute(["cancel", "submission=20260101T000000-abcdef", *where]) == 3
    assert "the latest are" in capsys.readouterr().err
    assert execute(["cancel", f"submission={FIRST}", "seed=0", *where]) == 2


def test_trials_of_an_edited_grid_are_told_and_can_be_called_off(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec lost a seed that waits in the queue, and one that has finished."""
    submit(campaign, SSA[:4])
    (name,) = campaign.layout.grid_names()
    plan, header = campaign.layout.grid_trials(name), campaign.layout.grid_header(name)
    gone = {campaign.line("SSA", 1)["trial"], campaign.line("softmax", 1)["trial"]}
    lines = [line for line in plan.read_bytes().splitlines(keepends=True) if json.loads(line)["trial"] not in gone]
    plan.write_bytes(b"".join(lines))
    write_json(header, {**read_json(header), "trials": len(lines)})
    kept = {name: [json.loads(line)["trial"] for line in lines]}
    queued = queued_elsewhere(campaign.layout, [], Scripted({"7_0": RUNS}), kept)
    assert any("1 trial of submission" in note and "left the grid" in note for note in queued.notes)
    assert queued.notes[-1].startswith("1 finished trial is in no grid any more")
    scheduler = Scripted({"7_0": RUNS})
    scheduler.cancel = Queue(campaign.layout)
    monkeypatch.setattr("ablate.runners.backends.slurm.queue.SlurmScheduler", lambda: scheduler)
    where = ["--campaign", str(campaign.root)]
    said = " ".join(Cancelled(campaign, {"7_0": RUNS}).where.notes)
    assert "1 queued or running trial is in no grid any more" in said
    assert "1 finished trial is in no grid any more" in said
    assert execute(["cancel", "--outdated", "seed=1", *where]) == 2
    assert execute(["cancel", "--outdated", *where]) == 0
    assert read_cancelled(campaign.layout, FIRST) == CalledOff(False, frozenset(keys(campaign, 1)))
    assert not Cancelled(campaign, {"7_0": RUNS}).where.outdated
