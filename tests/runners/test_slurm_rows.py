"""Rows of worker tasks: each row is trained, none is forgotten, and few files are read."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from row_fakes import ALIVE, DONE, FREE, HELD, SUBMISSION, Clock, Seen, drained, rows_of
from synthetic import write_end, write_start
from toy_campaign import run_quietly, toy_grid

from ablate.runners.attempts.claims import Claim, claim
from ablate.runners.attempts.leases import Leases
from ablate.runners.attempts.manifest import Manifest, trial_lines, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Outcome
from ablate.runners.attempts.worker_records import (
    BudgetTracker,
    CalledOff,
    Cancellations,
    WorkerRecord,
    cancelled_path,
    read_workers,
    used_hours,
    worker_path,
    write_worker,
)
from ablate.runners.backends.slurm.worker.assignment import device_groups
from ablate.runners.backends.slurm.worker.done_rows import DoneRows
from ablate.runners.backends.slurm.worker.row_state import RowState, RowStates
from ablate.runners.backends.slurm.worker.rows import RowShare
from ablate.runners.backends.slurm.worker.task_environment import TimeBudget, here, seconds_left
from ablate.runners.checkpoint import save_checkpoint
from ablate.runners.processes.failure import failure_of
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 9))
def test_the_shares_of_all_workers_are_the_class(first: int, count: int, workers: int) -> None:
    shares = [RowShare((first, first + count), worker, workers) for worker in range(workers)]
    assert sorted(row for share in shares for row in share.own) == list(range(first, first + count))
    for share in shares:
        assert sorted(share.own + share.others) == list(range(first, first + count))


@given(st.lists(st.text("ab", min_size=1), max_size=9), st.integers(1, 4))
def test_every_device_is_in_one_group(devices: list[str], per_trial: int) -> None:
    groups = device_groups(devices, per_trial)
    together = [device for group in groups if group for device in group.split(",")]
    assert together == devices[: len(together)]
    assert len(devices) - len(together) < per_trial


@given(st.integers(1, 30), st.integers(1, 5), st.data())
def test_a_worker_alone_takes_every_row_that_can_be_had_once(count: int, workers: int, data: st.DataObject) -> None:
    looks = {
        row: found
        for row in range(count)
        if (found := data.draw(st.sampled_from([None, FREE, DONE, ALIVE, RowState("free", died_here=True)])))
    }
    share = RowShare((0, count), data.draw(st.integers(0, workers - 1)), workers)
    rows = rows_of(Seen(looks), share)
    found = drained(rows)
    assert sorted(found) == [row for row in range(count) if looks.get(row, FREE).state == "free"]
    assert rows.rows_left() == 0
    assert not rows.unfinished


def test_own_rows_come_first_then_those_of_others_then_what_was_lost_here() -> None:
    looks = {1: FREE, 4: RowState("free", died_here=True), 5: FREE, 0: DONE}
    rows = rows_of(Seen(looks), RowShare((0, 8), 0, 2))
    found = drained(rows)
    assert found[:2] == [2, 6]
    assert set(found[2:6]) == {1, 3, 5, 7}
    assert found[6:] == [4]


def test_a_row_that_came_back_goes_first_and_one_found_held_is_looked_at_again() -> None:
    clock = Clock()
    rows = rows_of(Seen(), RowShare((0, 6), 0, 1), clock)
    assert [rows.take(), rows.take()] == [0, 1]
    rows.give_back(1)
    rows.give_back(0)
    assert [rows.take(), rows.take(), rows.take()] == [0, 1, 2]
    rows.reclaim()
    assert [rows.take() for _ in range(6)] == list(range(6))
    rows.came_back(Outcome(0, "running"))
    assert rows.take() is None
    clock.now += 2
    assert rows.take() == 0


def test_what_others_work_on_is_looked_at_again_but_less_and_less_often() -> None:
    clock, seen = Clock(), Seen({0: HELD})
    rows = rows_of(seen, RowShare((0, 1), 0, 1), clock)
    for _ in range(600):
        assert rows.take() is None
        clock.now += 0.2
    assert 5 <= len(seen.asked) <= 9
    seen.looks[0] = FREE
    clock.now += 31
    assert rows.take() == 0
    rows.came_back(Outcome(0, "stopped", 1))
    assert rows.unfinished
    rows.give_back(0)
    assert rows.take() == 0
    rows.came_back(Outcome(0, "running", 1))
    seen.looks[0] = ALIVE
    clock.now += 5
    assert rows.take() is None
    assert (rows.rows_left(), rows.unfinished) == (0, False)


def test_a_task_leaves_once_its_workers_are_done_and_the_owners_of_the_rest_are_surely_alive() -> None:
    clock, seen = Clock(), Seen({0: HELD, 1: ALIVE})
    rows = rows_of(seen, RowShare((0, 3), 0, 1), clock)
    assert rows.take() == 2
    assert rows.take() is None
    assert (rows.rows_left(), rows.unfinished) == (2, True)  # this task takes 1 if its owner dies
    rows.came_back(Outcome(2, "failed", 1))
    assert rows.take() is None
    assert (rows.rows_left(), rows.unfinished) == (2, True)
    seen.looks[0] = ALIVE
    clock.now += 5
    assert rows.take() is None
    assert (rows.rows_left(), rows.unfinished) == (0, False)


def test_rows_called_off_are_neither_taken_nor_taken_back() -> None:
    assert drained(rows_of(Seen(), RowShare((0, 2), 0, 1), willing=lambda: False)) == []
    seen = Seen()
    rows = rows_of(seen, RowShare((0, 4), 0, 2))
    assert rows.take() == 0
    rows.drop([seen.key(0), seen.key(2), seen.key(3)])
    rows.came_back(Outcome(0, "stopped", 1))
    rows.give_back(0)
    assert drained(rows) == [1]
    assert not rows.unfinished


def test_rows_that_others_have_are_nothing_to_be_queued_again_for_though_nobody_looked_at_them() -> None:
    seen = Seen({0: DONE, 1: ALIVE, 2: DONE})
    assert not rows_of(seen, RowShare((0, 3), 0, 2)).unfinished
    assert rows_of(seen, RowShare((0, 4), 0, 2)).unfinished
    seen, slow = Seen(dict.fromkeys(range(9), DONE)), Clock()
    slow.pause_s = 2.0
    assert rows_of(seen, RowShare((0, 9), 0, 1), slow).unfinished  # it cannot be known in time
    assert len(seen.asked) < 9


@pytest.fixture
def campaign(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    write_submission(layout, SUBMISSION, trial_lines(toy_grid(fates=["ok", "raises"])))
    return layout


def state_of(layout: Layout, node: str = "n0", leases: Leases | None = None, **job: Any) -> RowStates:
    return RowStates(RunRequest(layout.root, SUBMISSION, **job), node, leases)


def change(path: Path, **fields: Any) -> None:
    write_json(path, {**read_json(path), **fields})


def test_files_say_what_is_done_free_and_held(campaign: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = state_of(campaign)
    assert seen.state_of_row(0) == FREE
    about = dict.fromkeys(("path", "device", "threads", "code", "sources"))
    place = {"submission": SUBMISSION, "worker": 0, "heartbeat_s": 10.0, "place": {"node": "n0"}}
    assert isinstance(claim(campaign, seen.key(0), {**about, **place}, retry=False), Claim)
    assert seen.state_of_row(0) == ALIVE  # its process is this one
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    clock = Clock()
    far = state_of(campaign, leases=Leases(clock=clock, shared=lambda: None))
    assert far.state_of_row(0) == HELD  # nothing is known at the first look
    campaign.heartbeat(seen.key(0), 1).write_text("sign of life")
    assert far.state_of_row(0) == ALIVE
    for _ in range(5):
        clock.now += 10
        assert far.state_of_row(0) == ALIVE
    clock.now += 10
    assert far.state_of_row(0) == RowState("free", died_here=True)
    assert state_of(campaign, "n1", Leases(clock=clock, shared=lambda: None)).state_of_row(0).died_here is False


def test_failed_and_old_results_are_done_unless_they_are_to_be_had_anew(tmp_path: Path) -> None:
    grid, layout = toy_grid(seeds=[0], fates=["ok", "raises"]), Layout(tmp_path)
    run_quietly(tmp_path, grid)
    lines = list(trial_lines(grid))
    write_submission(layout, SUBMISSION, lines)
    rows = {line["spec"]["fate"]: row for row, line in enumerate(lines)}
    ok, failed = rows["ok"], rows["raises"]

    def looks(**job: Any) -> list[RowState]:
        states = state_of(layout, **job)
        return [states.state_of_row(ok), states.state_of_row(failed)]

    again = {"retry": True, "again": True}
    assert looks() == [DONE, DONE]
    assert looks(**again) == [FREE, FREE]
    keys = [lines[row]["trial"] for row in (ok, failed)]
    for key in keys:  # as if this submission had had them
        change(layout.start(key, 1), submission=SUBMISSION)
    assert looks(**again) == [DONE, DONE]
    first = layout.attempt(keys[1], 1)
    shutil.copytree(first, first.with_name("002"))
    change(first.with_name("002") / "start.json", submission="another")
    assert looks(**again) == [DONE, FREE]  # the latest failure is not of this submission
    shutil.rmtree(first.with_name("002"))
    change(layout.end(keys[1], 1), reason="out_of_memory")
    assert looks() == [DONE, DONE]
    assert looks(oom="halve") == [DONE, FREE]  # whoever takes it may cut it smaller


@given(st.lists(st.floats(0.1, 1e4), max_size=40), st.floats(1, 1e5), st.floats(60, 1e5))
def test_a_trial_is_begun_only_if_most_would_be_over_in_time(took: list[float], left_s: float, limit_s: float) -> None:
    clock = Clock()
    pace = TimeBudget(left_s, limit_s, 30, clock)
    for seconds in took:
        pace.add(seconds)
    assert pace.needed_s <= limit_s / 4
    if pace.needed_s < limit_s / 4:
        assert sum(seconds <= pace.needed_s for seconds in took) >= 0.95 * len(took)
    assert pace.is_enough() == (left_s - 30 > pace.needed_s)
    clock.now += left_s
    assert not pace.is_enough()


def test_a_task_knows_its_place() -> None:
    alone = here({"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1"})
    assert (alone.job, alone.task, alone.restarts) == ("12", 0, 0)
    assert alone.devices(2) == ("0", "1")
    environ = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4", "SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"}
    found = here({**environ, "CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"})
    assert (found.job, found.task, found.restarts) == ("7_4", 4, 2)
    assert found.devices(1) == ("GPU-a",)
    assert found.record["devices"] == "GPU-a,GPU-b"
    assert here({}).job == "0"


@pytest.mark.parametrize(
    ("end", "left"),
    [(None, 3599), ("1500", 500), ("4600", 3600), ("4640", 3599), ("999999", 3599), ("10", 3599), ("unlimited", 3599)],
)
def test_a_wrong_end_time_is_not_believed(monkeypatch: pytest.MonkeyPatch, end: str | None, left: float) -> None:
    environ = {} if end is None else {"SLURM_JOB_END_TIME": end}
    monkeypatch.setattr(
        "ablate.runners.backends.slurm.worker.task_environment.process_started",
        lambda _: 100 * os.sysconf("SC_CLK_TCK"),
    )
    monkeypatch.setattr(time, "clock_gettime", lambda _: 101.0)
    assert seconds_left(3600, environ, now=1000.0) == left


RECORD = WorkerRecord(SUBMISSION, 0, 3, 1, "7_3", "n0", "n0", 5, 1.0, 2.0, 3600.0, gpus=2, slots=4, cpus=9)


def test_a_budget_counts_all_readable_records_and_is_looked_at_now_and_then(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    assert read_workers(layout, SUBMISSION) == []
    budget = BudgetTracker(layout, SUBMISSION, 3.0, "gpuh", clock)
    write_worker(layout, RECORD)
    worker_path(layout, replace(RECORD, worker=9)).write_text('{"schema": 1')
    assert not budget.empty()
    done = replace(RECORD, worker=4, left="done", seconds=600.0)
    write_worker(layout, done)
    assert read_workers(layout, SUBMISSION) == [RECORD, done]
    assert (used_hours([RECORD, RECORD], "gpuh"), used_hours([RECORD], "cpuh")) == (4.0, 9.0)
    clock.now += 61
    assert not budget.empty()
    worker_path(layout, done).write_text("never read again")
    write_worker(layout, replace(RECORD, seconds=3600 + 1200.0))
    assert not budget.empty()
    clock.now += 61
    assert budget.empty()
    worker_path(layout, RECORD).unlink()
    clock.now += 61
    assert budget.empty()


def test_between_two_looks_at_a_budget_workers_are_taken_to_go_on(tmp_path: Path) -> None:
    """A thousand workers are read every 200 s, and use 20 hours in 72 s."""
    clock, budget = Clock(), None
    for seconds in (3600.0, 3673.0):
        for worker in range(1000):
            write_worker(Layout(tmp_path), replace(RECORD, worker=worker, seconds=seconds, gpus=1))
        budget = budget or BudgetTracker(Layout(tmp_path), SUBMISSION, 1020.0, "gpuh", clock)
        assert not budget.empty()
        clock.now += 61 if seconds == 3600 else 12
    assert budget.empty()


def test_cancellations_are_noticed_when_the_file_changes(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    cancellations = Cancellations(layout, SUBMISSION, clock)
    assert not cancellations.read_again()
    layout.submission(SUBMISSION).mkdir(parents=True)
    cancelled_path(layout, SUBMISSION).write_text('{"schema": 1, "all"')
    clock.now += 4
    assert not cancellations.read_again()
    write_json(cancelled_path(layout, SUBMISSION), {"schema": 1, "all": False, "trials": ["ab"]})
    assert not cancellations.read_again()
    clock.now += 4
    assert cancellations.read_again()
    assert cancellations.current == CalledOff(all=False, trials=frozenset({"ab"}))


@pytest.fixture
def queued(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.submission(SUBMISSION).mkdir(parents=True)
    return layout


def test_a_row_that_is_marked_is_not_looked_at(queued: Layout) -> None:
    """Marks of an earlier life count at once, those of others once own rows are through, and after a minute."""
    share, clock = RowShare((0, 12), 1, 3), Clock()
    for row in (1, 0):
        DoneRows(queued, SUBMISSION).add(row)
    looks = Seen({7: DONE})
    rows = rows_of(looks, share, done=DoneRows(queued, SUBMISSION, clock))
    assert (rows.take(), looks.asked) == (4, [4])
    rows.came_back(Outcome(4, "done", 1))
    assert (rows.take(), looks.asked) == (10, [4, 7, 10])
    rows.came_back(Outcome(10, "failed", 1, failure_of(ValueError())))
    for row in range(2, 12):
        DoneRows(queued, SUBMISSION).add(row)
    clock.now += 61
    assert rows.take() is None
    assert (rows.rows_left(), rows.unfinished, looks.asked) == (0, False, [4, 7, 10])


def test_what_is_final_is_marked_and_nothing_else(queued: Layout) -> None:
    looks = Seen({0: DONE, 1: DONE})
    rows = rows_of(looks, RowShare((0, 7), 0, 1), done=DoneRows(queued, SUBMISSION))
    assert [rows.take() for _ in range(6)] == [2, 3, 4, 5, 6, None]
    rows.came_back(Outcome(2, "done", 1))
    rows.came_back(Outcome(3, "failed", 1, failure_of(ValueError())))
    rows.came_back(Outcome(4, "failed"))
    rows.came_back(Outcome(5, "stopped", 1))
    rows.came_back(Outcome(6, "failed", None, failure_of(OSError())))  # this node could not record it
    assert {path.name for path in (queued.submission(SUBMISSION) / "done").iterdir()} == set("01234")


def test_marks_that_cannot_be_written_or_read_do_no_harm(queued: Layout) -> None:
    """Nor is a campaign made again that was moved away."""
    done = DoneRows(queued, SUBMISSION)
    (queued.submission(SUBMISSION) / "done" / "damaged").touch()
    shutil.rmtree(queued.root)
    rows = rows_of(Seen({0: DONE}), RowShare((0, 2), 0, 1), done=done)
    assert drained(rows) == [1]
    assert not rows.unfinished
    assert not queued.root.exists()


def test_checkpoints_that_a_killed_worker_left_of_a_finished_trial_go_when_it_is_seen(campaign: Layout) -> None:
    seen = state_of(campaign)
    key = seen.key(0)
    for attempt in (1, 2, 3):
        write_start(campaign, key, attempt)
        save_checkpoint(campaign.checkpoint(key, attempt), key, attempt, {})
    assert seen.state_of_row(0) == ALIVE
    write_end(campaign, key, 2)
    assert seen.state_of_row(0) == DONE
    assert [campaign.checkpoint(key, attempt).exists() for attempt in (1, 2, 3)] == [False, False, True]


def test_keys_need_no_spec(campaign: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = state_of(campaign)
    keys = [seen.line(row)["trial"] for row in range(4)]
    monkeypatch.setattr(Manifest, "line", None)
    assert [seen.key(row) for row in range(4)] == keys
