"""Rows of worker tasks: each row is trained, none is forgotten, and few files are read."""

import errno
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

from grid.errors import EnvironmentProblem
from runners.attempts.claims import Claim, claim
from runners.attempts.leases import Leases
from runners.attempts.manifest import Manifest, trial_lines, write_submission
from runners.attempts.worker import Job, Outcome
from runners.checkpoint import has_checkpoints, save_checkpoint
from runners.slurm.worker.row_state import CompletedRows as Known, RowLook, RowStates
from runners.slurm.worker.rows import RowShare
from runners.slurm.worker.task_environment import TimeBudget, here, seconds_left
from runners.slurm.worker_records import (
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
from store.files.atomic import write_json
from store.files.layout import Layout


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 9))
def test_the_shares_of_all_workers_are_the_class(first: int, count: int, workers: int) -> None:
    shares = [RowShare((first, first + count), worker, workers) for worker in range(workers)]
    assert sorted(row for share in shares for row in share.own) == list(range(first, first + count))
    for share in shares:
        assert sorted(share.own + share.others) == list(range(first, first + count))


@given(st.integers(1, 30), st.integers(1, 5), st.data())
def test_a_worker_alone_takes_every_row_that_can_be_had_once(count: int, workers: int, data: st.DataObject) -> None:
    looks = {
        row: found
        for row in range(count)
        if (found := data.draw(st.sampled_from([None, FREE, DONE, ALIVE, RowLook("free", lost_here=True)])))
    }
    share = RowShare((0, count), data.draw(st.integers(0, workers - 1)), workers)
    rows = rows_of(Seen(looks), share)
    found = drained(rows)
    assert sorted(found) == [row for row in range(count) if looks.get(row, FREE).state == "free"]
    assert rows.rows_left() == 0
    assert not rows.unfinished


def test_own_rows_come_first_then_what_nobody_began_then_what_was_given_up_then_what_was_lost_here() -> None:
    looks = {1: FREE, 4: RowLook("free", lost_here=True), 5: FREE, 0: DONE}
    rows = rows_of(Seen(looks), RowShare((0, 8), 0, 2))
    found = drained(rows)
    assert found[:2] == [2, 6]
    assert set(found[2:4]) == {3, 7}
    assert set(found[4:6]) == {1, 5}
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
    rows.came_back(Outcome(0, "held"))
    assert rows.take() is None
    clock.now += 2
    assert rows.take() == 0


def test_what_others_work_on_is_looked_at_again_but_less_and_less_often() -> None:
    clock = Clock()
    seen = Seen({0: HELD})
    rows = rows_of(seen, RowShare((0, 1), 0, 1), clock)
    for _ in range(600):
        assert rows.take() is None
        clock.now += 0.2
    assert 5 <= len(seen.asked) <= 9
    seen.looks[0] = FREE
    clock.now += 31
    assert rows.take() == 0


def test_a_task_leaves_once_its_workers_are_done_and_the_owners_of_the_rest_are_surely_alive() -> None:
    clock = Clock()
    seen = Seen({0: HELD, 1: ALIVE})
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


def test_unwilling_is_without_rows_and_what_was_stopped_is_unfinished() -> None:
    willing = [True]
    rows = rows_of(Seen(), RowShare((0, 2), 0, 1), willing=lambda: willing[0])
    assert drained(rows_of(Seen(), RowShare((0, 2), 0, 1), willing=lambda: False)) == []
    assert [rows.take(), rows.take()] == [0, 1]
    rows.came_back(Outcome(0, "ok", 1))
    willing[0] = False
    rows.came_back(Outcome(1, "stopped", 1))
    assert (rows.take(), rows.rows_left(), rows.unfinished) == (None, 0, True)


@pytest.fixture
def campaign(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    write_submission(layout, SUBMISSION, trial_lines(toy_grid(fates=["ok", "raises"])))
    return layout


def outlook(layout: Layout, node: str = "n0", leases: Leases | None = None, **job: Any) -> RowStates:
    return RowStates(Job(layout.root, SUBMISSION, **job), node, leases)


def about(node: str, submission: str = SUBMISSION) -> dict[str, Any]:
    unknown = dict.fromkeys(("path", "device", "threads", "code", "sources"))
    return {**unknown, "submission": submission, "worker": 0, "heartbeat_s": 10.0, "place": {"node": node}}


def test_files_say_what_is_done_free_and_held(campaign: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = outlook(campaign)
    assert [seen.begun(0), seen.look(0)] == [False, FREE]
    mine = claim(campaign, seen.key(0), about("n0"), retry=False)
    assert isinstance(mine, Claim)
    assert [seen.begun(0), seen.look(0)] == [True, ALIVE]  # its process is this one
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    clock = Clock()
    far = outlook(campaign, leases=Leases(clock=clock, shared=lambda: None))
    assert far.look(0) == HELD  # nothing is known at the first look
    campaign.heartbeat(seen.key(0), 1).write_text("sign of life")
    assert far.look(0) == ALIVE
    for _ in range(5):
        clock.now += 10
        assert far.look(0) == ALIVE
    clock.now += 10
    assert far.look(0) == RowLook("free", lost_here=True)
    assert outlook(campaign, "n1", Leases(clock=clock, shared=lambda: None)).look(0).lost_here is False


def test_failed_and_old_results_are_done_unless_they_are_to_be_had_anew(tmp_path: Path) -> None:
    grid = toy_grid(seeds=[0], fates=["ok", "raises"])
    run_quietly(tmp_path, grid)
    layout = Layout(tmp_path)
    lines = list(trial_lines(grid))
    write_submission(layout, SUBMISSION, lines)
    at = {line["spec"]["fate"]: row for row, line in enumerate(lines)}
    assert outlook(layout).look(at["ok"]) == outlook(layout).look(at["raises"]) == DONE
    again = outlook(layout, retry=True, again=True)
    assert again.look(at["ok"]) == again.look(at["raises"]) == FREE
    for row in at.values():  # as if this submission had had them
        path = layout.start(again.key(row), 1)
        write_json(path, {**_read(path), "submission": SUBMISSION})
    assert again.look(at["ok"]) == again.look(at["raises"]) == DONE
    first = layout.attempt(again.key(at["raises"]), 1)
    shutil.copytree(first, first.with_name("002"))
    write_json(first.with_name("002") / "start.json", {**_read(first / "start.json"), "submission": "another"})
    assert again.look(at["raises"]) == FREE  # the latest failure is not of this submission
    shutil.rmtree(first.with_name("002"))
    end = layout.end(again.key(at["raises"]), 1)
    write_json(end, {**_read(end), "reason": "out_of_memory"})
    assert outlook(layout).look(at["raises"]) == DONE
    assert outlook(layout, oom="halve").look(at["raises"]) == FREE  # whoever takes it may cut it smaller
    assert outlook(layout, oom="halve").look(at["ok"]) == DONE
    assert outlook(layout).memory_bytes(at.values(), gpu=False)
    assert outlook(layout).memory_bytes(at.values(), gpu=True) is None


def _read(path: Path) -> dict[str, Any]:
    from store.files.atomic import read_json

    return read_json(path)


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
    alone = here({"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "3"})
    assert (alone.job, alone.task, alone.restarts, alone.cpus, alone.memory_bytes) == ("12", 0, 0, 3, 300 << 20)
    assert alone.devices(2) == ("0", "1")
    environ = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "4", "SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"}
    found = here({**environ, "CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b", "SLURM_MEM_PER_NODE": "0"})
    assert (found.job, found.task, found.restarts, found.memory_bytes) == ("7_4", 4, 2, None)
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
        "runners.slurm.worker.task_environment.process_started", lambda _: 100 * os.sysconf("SC_CLK_TCK")
    )
    monkeypatch.setattr(time, "clock_gettime", lambda _: 101.0)
    assert seconds_left(3600, environ, now=1000.0) == left


RECORD = WorkerRecord(SUBMISSION, 0, 3, 1, "7_3", "n0", "n0", 5, 1.0, 2.0, 3600.0, gpus=2, slots=4, cpus=9)


def test_worker_records_are_read_as_they_were_written_and_damage_is_left_out(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert read_workers(layout, SUBMISSION) == []
    other = replace(RECORD, worker=1, left="done", says="all")
    write_worker(layout, RECORD)
    write_worker(layout, other)
    worker_path(layout, replace(RECORD, worker=9)).write_text('{"schema": 1')
    assert read_workers(layout, SUBMISSION) == [other, RECORD]
    assert used_hours([RECORD, other], "gpuh") == 4.0
    assert used_hours([RECORD], "cpuh") == 9.0


def test_a_budget_counts_all_workers_and_is_looked_at_now_and_then(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    purse = BudgetTracker(layout, SUBMISSION, 3.0, "gpuh", clock)
    write_worker(layout, RECORD)
    assert not purse.empty()
    done = replace(RECORD, worker=4, left="done", seconds=600.0)
    write_worker(layout, done)
    clock.now += 61
    assert not purse.empty()
    worker_path(layout, done).write_text("never read again")
    write_worker(layout, replace(RECORD, seconds=3600 + 1200.0))
    assert not purse.empty()
    clock.now += 61
    assert purse.empty()
    worker_path(layout, RECORD).unlink()
    clock.now += 61
    assert purse.empty()


def test_between_two_looks_at_a_budget_workers_are_taken_to_go_on(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    workers = 1000  # are read every 200 s
    for worker in range(workers):
        write_worker(layout, replace(RECORD, worker=worker, seconds=3600.0, gpus=1))
    purse = BudgetTracker(layout, SUBMISSION, 1020.0, "gpuh", clock)
    assert not purse.empty()
    for worker in range(workers):
        write_worker(layout, replace(RECORD, worker=worker, seconds=3600.0 + 73.0, gpus=1))
    clock.now += 61
    assert not purse.empty()
    clock.now += 12
    assert purse.empty()  # 1000 workers have used 20 h after 72 s


def test_cancellations_are_noticed_when_the_file_changes(tmp_path: Path) -> None:
    layout, clock = Layout(tmp_path), Clock()
    found = Cancellations(layout, SUBMISSION, clock)
    assert not found.read_again()
    layout.submission(SUBMISSION).mkdir(parents=True)
    cancelled_path(layout, SUBMISSION).write_text('{"schema": 1, "all"')
    clock.now += 4
    assert not found.read_again()
    write_json(cancelled_path(layout, SUBMISSION), {"schema": 1, "all": False, "trials": ["ab"]})
    assert not found.read_again()
    clock.now += 4
    assert found.read_again()
    assert found.current == CalledOff(all=False, trials=frozenset({"ab"}))
    clock.now += 4
    assert not found.read_again()


def test_a_row_that_stopped_and_is_with_somebody_else_now_is_not_unfinished() -> None:
    clock = Clock()
    looks = Seen()
    rows = rows_of(looks, RowShare((0, 1), 0, 1), clock)
    assert rows.take() == 0
    rows.came_back(Outcome(0, "stopped", 1))
    assert rows.unfinished
    rows.give_back(0)
    assert rows.take() == 0
    rows.came_back(Outcome(0, "held", 1))
    looks.looks[0] = ALIVE
    clock.now += 5
    assert rows.take() is None
    assert (rows.rows_left(), rows.unfinished) == (0, False)


def test_a_worker_reads_no_list_but_its_own_before_its_own_rows_are_through(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.submission(SUBMISSION).mkdir(parents=True)
    layout.submission_record(SUBMISSION).write_text("{}")
    share = RowShare((0, 12), 1, 3)
    for worker, knows in enumerate([[0, 4], [1], [5, 10]]):
        one = Known(layout, SUBMISSION, f"0-{worker}", share.rows)
        for row in knows:
            one.add(row)
        one.publish()
    clock = Clock()
    known = Known(layout, SUBMISSION, "0-1", share.rows, clock)
    looks = Seen(dict.fromkeys([7], DONE))
    rows = rows_of(looks, share, clock, known=known)
    assert rows.take() == 4  # 1 it has known itself to be done; that 4 is, another knows
    assert looks.asked == [4]
    rows.came_back(Outcome(4, "ok", 1))
    assert rows.take() == 10
    assert looks.asked == [4, 7, 10]
    assert [row for row in range(12) if row in known] == [1, 4, 7]
    told = Known(layout, SUBMISSION, "0-1", share.rows)
    told.recall()
    assert [row for row in range(12) if row in told] == [1]
    rows.came_back(Outcome(10, "ok", 1))
    assert rows.take() not in (0, 5, None)  # lists are read, and the own one is published first
    told.recall()
    assert [row for row in range(12) if row in told] == [1, 4, 7, 10]


def test_finding_the_key_of_a_row_reads_no_spec(campaign: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = outlook(campaign)
    keys = [seen.line(row)["trial"] for row in range(4)]
    monkeypatch.setattr(Manifest, "line", None)
    assert [seen.key(row) for row in range(4)] == keys


def test_a_file_system_that_does_not_answer_is_said(campaign: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: Path) -> bool:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self))

    seen = outlook(campaign)
    monkeypatch.setattr("store.files.atomic.PAUSES_S", (0,))
    monkeypatch.setattr(Path, "exists", stale)
    with pytest.raises(EnvironmentProblem, match=r"cannot look for .*Stale file handle"):
        seen.begun(0)


def test_checkpoints_that_a_killed_worker_left_of_a_finished_trial_go_when_it_is_seen(campaign: Layout) -> None:
    seen = outlook(campaign)
    key = seen.key(0)
    for attempt in (1, 2, 3):
        write_start(campaign, key, attempt)
        save_checkpoint(campaign.checkpoint(key, attempt), key, attempt, {})
    assert seen.look(0) == ALIVE
    assert has_checkpoints(campaign, key, 1)
    write_end(campaign, key, 2)
    assert seen.look(0) == DONE
    assert [has_checkpoints(campaign, key, attempt) for attempt in (1, 2, 3)] == [False, False, True]
