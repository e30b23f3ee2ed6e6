"""Calling work off: first the file, then the queue; exactly what was meant; a run on this machine by its process."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from real_spec import real_spec
from submission_files import FIRST, RUNS, SECOND, WAITS, Scripted, submit
from synthetic import Campaign, write_campaign, write_end, write_start
from warm import REAL, Warm

from runners.attempts.submission_record import Array
from runners.cli.app import execute
from runners.execution.local_runs import runs_at_work
from runners.monitoring.cancel import Cancelling
from runners.monitoring.trial_states import locate_trials
from runners.slurm.worker_records import CalledOff, read_cancelled
from store.files.atomic import make_directory, read_json, write_json
from store.files.layout import Layout
from store.files.trial_status import process_started, trial_state
from store.ingest.ingest_lock import ingest_lock
from store.store import Store

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

    def __call__(self, jobs: Sequence[int]) -> str | None:
        self.told.append((list(jobs), read_cancelled(self._layout, FIRST).all))
        return self._problem


class Cancelled:
    """A `Cancelling` that knows where the trials are."""

    def __init__(self, campaign: Campaign, scheduler: Scripted, queue: Queue) -> None:
        with Store.open(campaign.root) as store:
            self.where = locate_trials(store, scheduler)
        self._cancelling = Cancelling(campaign.layout, self.where.crews, self.where.runs, queue)
        self.done, self.problems = self._cancelling.done, self._cancelling.problems
        self.everything = self._cancelling.everything

    def trials(self, keys: Sequence[str]) -> None:
        self._cancelling.trials(keys, self.where)


cancelling = Cancelled


def keys(campaign: Campaign, *seeds: int) -> list[str]:
    return [str(campaign.line("SSA", seed)["trial"]) for seed in seeds]


def test_everything_is_the_file_first_and_then_the_jobs(campaign: Campaign) -> None:
    submit(campaign, SSA[:4], classes=[(4, [Array(0, 2, 7), Array(2, 1, 9), Array(3, 1, 11)])])
    queue = Queue(campaign.layout)
    found = cancelling(campaign, Scripted({"7_0": RUNS, "9_0": WAITS}), queue)
    found.everything()
    assert queue.told == [([7, 9], True)]
    assert len(found.done) == 1
    assert found.problems == []
    again = cancelling(campaign, Scripted({"7_0": RUNS}), queue)
    again.everything()
    assert (again.done, len(queue.told)) == ([], 1)


def test_some_trials_are_called_off_in_every_submission_that_has_them(campaign: Campaign) -> None:
    submit(campaign, SSA[:4])
    submit(campaign, SSA[3:], submission=SECOND, classes=[(3, [Array(0, 1, 8)])])
    queue = Queue(campaign.layout)
    tasks = {"7_0": RUNS, "8_0": WAITS}
    cancelling(campaign, Scripted(tasks), queue).trials(keys(campaign, 1, 3))
    assert read_cancelled(campaign.layout, FIRST).trials == set(keys(campaign, 1, 3))
    assert read_cancelled(campaign.layout, SECOND).trials == set(keys(campaign, 3))
    cancelling(campaign, Scripted(tasks), queue).trials(keys(campaign, 0, 5))
    assert read_cancelled(campaign.layout, FIRST).trials == set(keys(campaign, 0, 1, 3))  # earlier entries stay
    assert queue.told == []
    again = cancelling(campaign, Scripted(tasks), queue)
    again.trials(keys(campaign, 0, 1))
    assert again.done == []  # it was done before


def test_a_submission_without_a_trial_left_is_called_off_as_a_whole(campaign: Campaign) -> None:
    submit(campaign, SSA[:3])
    done, *left = keys(campaign, 0, 1, 2)
    write_start(campaign.layout, done, 1)
    write_end(campaign.layout, done, 1)
    queue = Queue(campaign.layout)
    cancelling(campaign, Scripted({"7_0": RUNS}), queue).trials(left[:1])
    assert not read_cancelled(campaign.layout, FIRST).all
    cancelling(campaign, Scripted({"7_0": RUNS}), queue).trials(left)
    assert queue.told == [([7], True)]


def test_a_queue_that_cannot_be_told_is_said_with_what_does_it(campaign: Campaign) -> None:
    submit(campaign, SSA)
    found = cancelling(campaign, Scripted(), Queue(campaign.layout, "the controller is away"))
    found.everything()
    assert read_cancelled(campaign.layout, FIRST).all
    assert found.done == []
    assert "`scancel 7` does that" in found.problems[0]
    assert "2 workers" not in found.problems[0]  # nobody knows how many there are


def test_what_has_ended_is_left_alone(campaign: Campaign) -> None:
    submit(campaign, SSA)
    queue = Queue(campaign.layout)
    found = cancelling(campaign, Scripted({}), queue)
    found.everything()
    found.trials(keys(campaign, 0))
    assert (queue.told, found.done, found.problems) == ([], [], [])
    assert not read_cancelled(campaign.layout, FIRST).all


def test_a_run_of_another_host_is_named_and_not_touched(campaign: Campaign) -> None:
    (key,) = keys(campaign, 0)
    submit(campaign, SSA[:2], machine="local", host="elsewhere", pid=os.getpid())
    assert runs_at_work(campaign.layout) == []
    write_start(campaign.layout, key, 1, host="elsewhere", pid=os.getpid(), started=time.time(), submission=FIRST)
    (run,) = runs_at_work(campaign.layout)
    found = Cancelling(campaign.layout, [], [run], Queue(campaign.layout))
    found.everything()
    assert f"is on elsewhere and this is {socket.gethostname()}" in found.problems[0]


def test_a_run_that_has_not_begun_a_trial_is_asked_to_stop(campaign: Campaign) -> None:
    """A process of its own stands for it, and ends by the signal."""
    run = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        about = {"host": socket.gethostname(), "pid": run.pid, "pid_started": process_started(run.pid)}
        submit(campaign, SSA[:2], machine="local", **about)
        found = cancelling(campaign, Scripted(), Queue(campaign.layout))
        found.trials(keys(campaign, 5))
        assert (found.done, found.problems) == ([], [])
        found.trials(keys(campaign, 1))
        assert "can only be stopped as a whole" in found.problems[0]
        assert run.poll() is None
        found.everything()
        assert f"(process {run.pid}) was asked to stop" in found.done[0]
        assert run.wait() == -signal.SIGTERM
    finally:
        run.kill()
        run.wait()


SPEC = real_spec("long", training="steps=1_000_000", operators="softmax()")


@pytest.mark.slow
@pytest.mark.parametrize("machine", [["--workers", "2"], ["--on", "inline"]])
def test_a_run_on_this_machine_is_asked_to_stop_and_saves_its_state(tmp_path: Path, machine: list[str]) -> None:
    """The command, in a process of its own; what is trained then has a checkpoint and no result."""
    path = tmp_path / "long.py"
    path.write_text(SPEC)
    root = tmp_path / "campaign"
    command = [sys.executable, "-P", "-m", "runners"]
    words = [*command, "run", str(path), "--campaign", str(root), *machine]
    run = Warm(words, preload=REAL, stderr=subprocess.PIPE, text=True)
    try:
        layout = Layout(root)
        while not any(at_step(layout, key) for key in layout.trial_keys()):
            assert run.poll() is None, run.communicate()[1]
            time.sleep(0.05)
        cancel = [*command, "cancel", "--campaign", str(root)]
        some, _, said = ended([*cancel, "seed=0"])
        assert some == 5
        assert "can only be stopped as a whole" in said
        all_, answered, said = ended(cancel)
        assert all_ == 0, said
        assert f"(process {run.pid}) was asked to stop" in answered
        assert run.wait() == 130
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGKILL)
        run.communicate()
    begun = [found for key in layout.trial_keys() for found in trial_state(layout, key).attempts]
    assert begun
    assert all(found.end and found.end["status"] == "stopped" for found in begun)


def ended(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command."""
    with Warm(command, preload=REAL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, err = process.communicate()
        return process.returncode, out, err


def at_step(layout: Layout, key: str) -> bool:
    """Whether the trial is being trained by a process that is there."""
    live = trial_state(layout, key).live
    return live is not None and live.start["device"] is not None and process_started(live.start["pid"]) is not None


@pytest.mark.parametrize("second", ["everything", "another"])
def test_two_calls_at_once_are_both_kept(campaign: Campaign, monkeypatch: pytest.MonkeyPatch, second: str) -> None:
    """The second comes when the first has read what was called off before, and has written nothing yet."""
    submit(campaign, SSA[:4])
    first, other = (cancelling(campaign, Scripted({"7_0": RUNS}), Queue(campaign.layout)) for _ in range(2))
    one, two = keys(campaign, 0), keys(campaign, 1)
    then = threading.Thread(target=other.everything if second == "everything" else lambda: other.trials(two))
    waits = threading.Event()
    monkeypatch.setattr("runners.monitoring.cancel.say", lambda _: waits.set())

    def slow(layout: Layout, submission: str) -> CalledOff:
        found = read_cancelled(layout, submission)
        if threading.current_thread() is not then and not then.is_alive():
            then.start()
            while then.is_alive() and not waits.is_set():
                time.sleep(0.01)
        return found

    monkeypatch.setattr("runners.monitoring.cancel.read_cancelled", slow)
    first.trials(one)
    then.join()
    assert read_cancelled(campaign.layout, FIRST).trials >= {*one, *(two if second == "another" else ())}
    assert read_cancelled(campaign.layout, FIRST).all == (second == "everything")


def test_one_trial_that_is_called_off_late_does_not_bring_the_others_back(campaign: Campaign) -> None:
    """A process that read before everything was cancelled writes after it."""
    submit(campaign, SSA[:4])
    late = cancelling(campaign, Scripted({"7_0": RUNS}), Queue(campaign.layout))
    cancelling(campaign, Scripted({"7_0": RUNS}), Queue(campaign.layout)).everything()
    late.trials(keys(campaign, 2))
    assert read_cancelled(campaign.layout, FIRST).all


def test_everything_is_called_off_without_the_database(
    campaign: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is damaged, and an ingest is under way: neither matters."""
    submit(campaign, SSA[:4])
    submit(campaign, SSA[4:], submission=SECOND, classes=[(2, [Array(0, 2, 8)])])
    make_directory(campaign.layout.store)
    campaign.layout.live.write_bytes(b"no database")
    queue = Queue(campaign.layout)
    scheduler = Scripted({"7_0": RUNS, "8_0": WAITS})
    scheduler.cancel = queue  # type: ignore[method-assign]
    monkeypatch.setattr("runners.slurm.scheduler.SlurmScheduler", lambda: scheduler)
    where = ["--campaign", str(campaign.root)]
    with ingest_lock(campaign.layout, wait=False) as held:
        assert held
        assert execute(["cancel", f"submission={SECOND}", *where]) == 0
        assert [read_cancelled(campaign.layout, each).all for each in (FIRST, SECOND)] == [False, True]
        assert execute(["cancel", *where]) == 0
    assert read_cancelled(campaign.layout, FIRST).all
    assert [jobs for jobs, _ in queue.told] == [[8], [7]]
    assert execute(["cancel", "submission=20260101T000000-abcdef", *where]) == 3
    assert "the latest are" in capsys.readouterr().err
    assert execute(["cancel", f"submission={FIRST}", "seed=0", *where]) == 2


def test_trials_of_an_edited_grid_are_told_and_can_be_called_off(campaign: Campaign) -> None:
    """The spec lost a seed that waits in the queue, and one that has finished."""
    submit(campaign, SSA[:4])
    (name,) = campaign.layout.grid_names()
    plan, header = campaign.layout.grid_trials(name), campaign.layout.grid_header(name)
    gone = {campaign.line("SSA", 1)["trial"], campaign.line("softmax", 1)["trial"]}
    lines = [line for line in plan.read_bytes().splitlines(keepends=True) if json.loads(line)["trial"] not in gone]
    plan.write_bytes(b"".join(lines))
    write_json(header, {**read_json(header), "trials": len(lines)})
    queue = Queue(campaign.layout)
    found = cancelling(campaign, Scripted({"7_0": RUNS}), queue)
    assert found.where.outdated == tuple(keys(campaign, 1))
    assert any("1 queued or running trial is in no grid any more" in note for note in found.where.notes)
    found.trials(found.where.outdated)
    assert read_cancelled(campaign.layout, FIRST).trials == set(keys(campaign, 1))
    assert not cancelling(campaign, Scripted({"7_0": RUNS}), queue).where.outdated
