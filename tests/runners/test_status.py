"""Where trials are: from files, then the queue, then the accounts; and `unknown` where nobody can say."""

import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from submission_files import FIRST, HELD, RUNS, SECOND, SMALL, WAITS, Scripted, submit, write_record
from synthetic import Campaign, write_campaign, write_end, write_start

from ablate.runners.attempts.submission_record import Array, Submission, write_submission_record
from ablate.runners.attempts.worker_records import cancelled_path
from ablate.runners.backends.slurm.scheduler import Scheduler, TaskStatus
from ablate.runners.monitoring.status_text import (
    Status,
    cells,
    read_status,
    write_status,
)
from ablate.runners.monitoring.trial_locations import TrialLocations, infinite_notes, locate_trials
from ablate.runners.monitoring.watch import changes, read_view as view
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.trial_state import process_started
from ablate.store.state import COUNTED
from ablate.store.store import Store

SSA = [("SSA", seed) for seed in range(6)]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """softmax is done; nothing of SSA has begun."""
    return write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(6), pending=set(SSA), **SMALL)


def began(campaign: Campaign, seed: int, *, quiet_s: float = 0.0, attempt: int = 1, **fields: Any) -> str:
    """An attempt at SSA `seed` on another host, whose last sign of life is `quiet_s` old."""
    key = str(campaign.line("SSA", seed)["trial"])
    place = {"scheduler": "slurm", "job": "7_0", "restarts": 0, "node": "n0", "devices": "1"}
    usual = {"host": "n0.cluster", "pid": 4, "pid_started": 4, "submission": FIRST, "place": place, "heartbeat_s": 5.0}
    write_start(campaign.layout, key, attempt, **{**usual, "started": time.time() - 100, **fields})
    heartbeat = campaign.layout.heartbeat(key, attempt)
    heartbeat.write_text('{"step": 30, "steps": 60, "loss": 0.5}\n')
    os.utime(heartbeat, (time.time() - quiet_s,) * 2)
    return key


def look(campaign: Campaign, scheduler: Scheduler) -> TrialLocations:
    with Store.open(campaign.root) as store:
        return locate_trials(store, scheduler)


def states(campaign: Campaign, scheduler: Scheduler) -> list[str]:
    found = look(campaign, scheduler)
    return [found.trials[campaign.line(*trial)["trial"]].state for trial in SSA]


def fail(campaign: Campaign, seed: int, attempt: int = 1, *, submission: str = FIRST, **fields: Any) -> None:
    key = began(campaign, seed, attempt=attempt, submission=submission)
    usual = {"status": "failed", "reason": "error", "message": "m"}
    write_end(campaign.layout, key, attempt, **{**usual, **fields})


def cancel(campaign: Campaign, *seeds: int, everything: bool = False) -> None:
    keys = [campaign.line("SSA", seed)["trial"] for seed in seeds]
    write_json(cancelled_path(campaign.layout, FIRST), {"schema": 1, "all": everything, "trials": keys})


def status_of(campaign: Campaign, scheduler: Scheduler, grid: str | None = None) -> Status:
    with Store.open(campaign.root) as store:
        return read_status(store, locate_trials(store, scheduler), ["quickstart"], grid)


def test_a_trial_is_queued_while_a_worker_of_its_class_waits_or_runs(campaign: Campaign) -> None:
    submit(campaign, SSA[:4])
    for tasks in ({"7_0": WAITS}, {"7_1": RUNS}, {"7_0": RUNS, "7_1": WAITS}):
        assert states(campaign, Scripted(tasks)) == ["queued"] * 4 + ["pending"] * 2
    assert states(campaign, Scripted({})) == ["pending"] * 6
    submit(campaign, SSA, submission=SECOND, classes=[(2, [Array(0, 1, 8)]), (4, [Array(0, 1, 9)])])
    assert states(campaign, Scripted({"9_0": WAITS})) == ["pending"] * 2 + ["queued"] * 4


def test_every_state_there_is(campaign: Campaign) -> None:
    submit(campaign, SSA[:3], classes=[(2, [Array(0, 1, 7)]), (1, [Array(0, 1, 8)])])
    began(campaign, 0)
    began(campaign, 1, quiet_s=3000)
    began(campaign, 2, quiet_s=3000)
    fail(campaign, 3, submission=SECOND)
    found = ["running", "queued", "lost", "failed", "pending", "pending"]
    assert states(campaign, Scripted({"7_0": RUNS})) == found
    assert states(campaign, Scripted()) == ["running", "unknown", "unknown", *found[3:]]


def test_what_has_failed_is_queued_while_a_submission_that_tries_again_will_take_it(campaign: Campaign) -> None:
    for seed in range(3):
        fail(campaign, seed, submission=SECOND)
    record = submit(campaign, SSA[:3], job={"retry": True})
    assert states(campaign, Scripted({"7_0": WAITS})) == ["queued"] * 3 + ["pending"] * 3
    fail(campaign, 0, 2)
    cancel(campaign, 1)
    assert states(campaign, Scripted({"7_0": RUNS}))[:3] == ["failed", "failed", "queued"]
    assert states(campaign, Scripted({}))[:3] == ["failed"] * 3
    write_submission_record(campaign.layout, replace(record, job={"retry": False}))
    assert states(campaign, Scripted({"7_0": WAITS}))[:3] == ["failed"] * 3


def test_a_worker_that_wrote_lately_is_at_work_and_one_that_left_is_not_asked_for(campaign: Campaign) -> None:
    scheduler = Scripted({})
    assert states(campaign, scheduler) == ["pending"] * 6
    submit(campaign, SSA)
    write_record(campaign.layout, 0)
    assert set(states(campaign, Scripted())) == {"queued"}
    write_record(campaign.layout, 0, touched=time.time() - 3600)
    assert set(states(campaign, Scripted())) == {"unknown"}
    for number, left in enumerate(("done", "budget")):
        write_record(campaign.layout, number, left=left)
    assert set(states(campaign, scheduler)) == {"pending"}
    assert scheduler.asked == []


def test_the_queue_is_asked_once_and_the_accounts_for_those_alone_that_left_no_word(campaign: Campaign) -> None:
    submit(campaign, SSA[:3], classes=[(3, [Array(0, 3, 7), Array(3, 1, 9)])])
    submit(campaign, SSA[3:], submission=SECOND, classes=[(3, [Array(0, 1, 12)])])
    for number, fields in enumerate(({}, {"left": "time"}, {}, {"job": "9_0"})):
        write_record(campaign.layout, number, **fields)
    died = TaskStatus("ended", "NODE_FAIL, exit 0:0", "n2")
    scheduler = Scripted({"7_0": WAITS, "7_2": RUNS, "12": RUNS}, {"9_0": died})
    found = look(campaign, scheduler)
    assert scheduler.asked == [("queue", [7, 9, 12], []), ("accounts", [9], [])]
    workers = [worker for status in found.submissions for worker in status.workers]
    seen = {(each.submission, each.number): (each.standing, each.job, each.words) for each in workers}
    assert seen == {
        (FIRST, 0): ("queued", "7_0", "Priority"),
        (FIRST, 1): ("ended", "7_1", "time"),
        (FIRST, 2): ("running", "7_2", ""),
        (FIRST, 3): ("lost", "9_0", "NODE_FAIL, exit 0:0"),
        (SECOND, 0): ("running", "12", ""),
    }
    assert workers[0].node is None  # it waits, whatever its last life was on


def test_jobs_whose_numbers_were_never_written_down_are_found_by_name(campaign: Campaign) -> None:
    submit(campaign, SSA, classes=[(6, [Array(0, 1, None)])])
    scheduler = Scripted({"31_0": WAITS}, named={f"ablate-{FIRST}": [31]})
    assert set(states(campaign, scheduler)) == {"queued"}
    assert scheduler.asked == [("queue", [], [f"ablate-{FIRST}"])]
    assert set(states(campaign, Scripted({}))) == {"pending"}


def test_workers_that_are_held_take_nothing_and_what_to_do_is_told(campaign: Campaign) -> None:
    submit(campaign, SSA)
    scheduler = Scripted({"7_0": HELD, "7_1": HELD})
    assert set(states(campaign, scheduler)) == {"pending"}
    (status,) = look(campaign, scheduler).submissions
    assert {worker.standing for worker in status.workers} == {"held"}
    assert status.jobs == ["7_0", "7_1"]  # so that they can be cancelled
    (status,) = look(campaign, Scripted({"7_0": RUNS, "7_1": TaskStatus("held", "JobHeldAdmin")})).submissions
    assert [(each.standing, each.words) for each in status.workers] == [("running", ""), ("held", "JobHeldAdmin")]
    assert set(states(campaign, Scripted({"7_0": RUNS, "7_1": HELD}))) == {"queued"}


def test_what_is_called_off_is_queued_no_more(campaign: Campaign) -> None:
    submit(campaign, SSA)
    cancel(campaign, 0, 1)
    assert states(campaign, Scripted({"7_0": RUNS})) == ["pending"] * 2 + ["queued"] * 4
    cancel(campaign, everything=True)
    assert set(states(campaign, Scripted({"7_0": RUNS}))) == {"pending"}


def test_a_trial_that_was_saved_for_the_next_worker_is_stopped_when_there_is_none(campaign: Campaign) -> None:
    submit(campaign, SSA[:1])
    fail(campaign, 0, status="stopped", reason=None)
    assert states(campaign, Scripted({"7_0": WAITS}))[0] == "queued"
    assert states(campaign, Scripted({}))[0] == "stopped"


def test_cells_count_every_planned_trial_once_and_there_are_none_without_a_plan(campaign: Campaign) -> None:
    submit(campaign, SSA[:4])
    began(campaign, 0)
    began(campaign, 5, quiet_s=3000, submission=SECOND, place=None)
    with Store.open(campaign.root) as store:
        frame = cells(store, "quickstart", locate_trials(store, Scripted({"7_0": RUNS})))
    assert [sum(row) for row in frame.select(*COUNTED).rows()] == frame["planned"].to_list()
    assert dict(zip(frame["label"], frame.select(*COUNTED).rows(), strict=True)) == {
        "softmax": (6, 0, 0, 0, 0, 0, 0, 0, 0),
        "SSA": (0, 0, 1, 0, 3, 1, 0, 1, 0),
    }


def test_who_is_at_work_says_where_and_how_far(campaign: Campaign) -> None:
    key = began(campaign, 0, resumed_from={"attempt": 1, "step": 10}, attempt=2)
    (found,) = look(campaign, Scripted()).at_work
    assert (found.trial, found.attempt, found.host, found.devices) == (key, 2, "n0", "1")
    assert (found.step, found.steps, found.loss) == (30, 60, 0.5)
    assert found.steps_per_s == pytest.approx(0.2, rel=0.1)  # 20 steps of its own in 100 s


def test_a_trial_without_a_step_is_told_after_a_minute_and_a_hundred_steps(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted to now: also where no thread of its process can write a sign of life."""
    key = began(campaign, 0)
    heartbeat = campaign.layout.heartbeat(key, 1)
    for idle_s, step_s, quiet_s, told in (
        *((130.0, 0.008, 0.0, True), (30.0, 0.008, 0.0, False), (130.0, 2.0, 0.0, False), (230.0, 2.0, 0.0, True)),
        *((130.0, None, 0.0, True), (None, None, 0.0, False), (45.0, 0.008, 20.0, True)),
    ):
        heartbeat.write_text(json.dumps({"step": 30, "steps": 60, "loss": 0.5, "idle_s": idle_s, "step_s": step_s}))
        os.utime(heartbeat, (time.time() - quiet_s,) * 2)
        where = look(campaign, Scripted())
        (found,) = where.at_work
        assert (found.stall is not None) == told
        assert where.trials[key].state == ("stalled" if told else "running")
        write_status(status_of(campaign, Scripted()))
        assert ("no step for" in capsys.readouterr().out) == told


def test_a_used_up_budget_is_told(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    submit(campaign, SSA, budget={"hours": 0.001, "unit": "gpuh"})
    write_record(campaign.layout, 0, seconds=4.0, left="budget")
    for seed in range(5):
        write_end(campaign.layout, began(campaign, seed), 1)
    (said,) = look(campaign, Scripted({})).endings
    assert re.search(r"0\.0011 of 0\.001 GPU-h .* 1 trial left", said)
    assert said in next(changes([view(campaign.root, Scripted({}))]))
    assert look(campaign, Scripted({"7_1": RUNS})).endings == ()  # somebody ends what was begun
    write_status(status_of(campaign, Scripted({})))
    assert said in capsys.readouterr().out
    submit(campaign, SSA[5:], submission=SECOND, classes=[(1, [Array(0, 1, 8)])])
    assert look(campaign, Scripted({"8_0": WAITS})).endings == ()
    assert look(campaign, Scripted({})).endings == ()  # it is the later submission that has left it


def test_what_was_called_off_is_told_while_nobody_takes_it(campaign: Campaign) -> None:
    submit(campaign, SSA[:4])
    cancel(campaign, 0, 1)
    (line,) = look(campaign, Scripted({"7_0": RUNS})).endings
    assert f"2 trials of submission {FIRST}" in line
    cancel(campaign, 0, 1, everything=True)
    assert look(campaign, Scripted({})).endings == (line.replace("2 trials", "4 trials"),)
    submit(campaign, SSA[:3], submission=SECOND, classes=[(3, [Array(0, 1, 8)])])
    (line,) = look(campaign, Scripted({"8_0": RUNS})).endings
    assert line.startswith(f"cancelled: 1 trial of submission {FIRST};")


def test_a_full_disk_is_told(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(campaign, Scripted({})).notes == ()
    monkeypatch.setattr(
        "ablate.runners.monitoring.trial_locations.disk_problem", lambda root: f"the disk of {root} is full"
    )
    assert look(campaign, Scripted({})).notes == (f"the disk of {campaign.layout.root} is full",)


def test_a_damaged_submission_record_is_told_and_hides_nothing_else(campaign: Campaign) -> None:
    submit(campaign, SSA[:2])
    submit(campaign, SSA[2:], submission=SECOND)
    path = campaign.layout.submission_record(FIRST)
    whole = read_json(path)
    for text in ("{", *map(json.dumps, ({**whole, "schema": 2}, {**whole, "more": 1}, {"schema": 1}))):
        path.write_text(text)
        found = look(campaign, Scripted({"7_0": RUNS}))
        assert len(found.of("queued")) == 4
        assert FIRST in found.notes[0]


def on_this_host(campaign: Campaign) -> Submission:
    """The record of a run without a scheduler, which is this process."""
    about = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": process_started(os.getpid())}
    return submit(campaign, SSA[:2], machine="local", **about)


def test_a_run_on_this_machine_that_is_just_starting_has_queued_its_trials(campaign: Campaign) -> None:
    record = on_this_host(campaign)
    assert states(campaign, Scripted()) == ["queued"] * 2 + ["pending"] * 4
    changes: list[dict[str, Any]] = [
        {"ended": time.time()}, {"pid_started": 1}, {"host": "elsewhere"}, {"host": None, "pid": None}
    ]  # fmt: skip
    for gone in changes:
        write_submission_record(campaign.layout, replace(record, **gone))
        assert states(campaign, Scripted()) == ["pending"] * 6
    fail(campaign, 0, submission=SECOND)
    for retry, state in ((False, "failed"), (True, "queued")):
        write_submission_record(campaign.layout, replace(record, job={"retry": retry}))
        assert states(campaign, Scripted())[:2] == [state, "queued"]


def test_the_text_has_what_the_data_has(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    submit(campaign, SSA[:5])
    began(campaign, 0)
    began(campaign, 5, quiet_s=3000, submission=SECOND, place=None)
    found = status_of(campaign, Scripted({"7_0": RUNS, "7_1": WAITS}))
    write_status(found)
    assert "30/60" in capsys.readouterr().out
    data = found.data()
    assert Counter(each["state"] for each in data["trials"].values()) == {"running": 1, "queued": 4, "lost": 1}
    assert len(data["workers"]) == 2
    assert data["submissions"][0]["classes"] == {"c0": "live"}


def test_of_very_many_cells_those_with_something_going_on_are_printed(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = status_of(campaign, Scripted())
    failed = nobody.grids["quickstart"].with_columns(failed=(pl.col("label") == "softmax").cast(pl.Int64))
    for status, shown, hidden in (
        (nobody, "SSA", "softmax"),  # nobody has begun SSA, and softmax is done
        (nobody._replace(grids={"quickstart": failed}), "softmax", "SSA"),
    ):
        write_status(status, most_cells=1)
        output = capsys.readouterr().out
        assert re.search(rf"^{shown} ", output, re.MULTILINE)
        assert not re.search(rf"^{hidden} ", output, re.MULTILINE)


def test_finished_trials_without_a_finite_measure_are_counted(tmp_path: Path) -> None:
    level = {"softmax": 0.0, "SSA": float("nan")}
    write_campaign(tmp_path, operators=tuple(level), seeds=range(3), effect=lambda axes: level[axes["operator"]])
    with Store.open(tmp_path) as store:
        assert [note.split()[0] for note in infinite_notes(store)] == ["3"]


def test_a_query_keeps_trials_and_a_note_on_several_stands_once(tmp_path: Path, ablate: Callable) -> None:
    failed = {(label, 0): "diverged" for label in ("softmax", "SSA")}
    made = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(2), failed=failed)
    ablate("note", "seed=0", "looks odd", "--campaign", tmp_path)
    said = ablate("status", "--campaign", tmp_path).out.splitlines()
    assert said[0].endswith("2 of 4 trials done, 2 failed")
    assert [line.count("1 more trial") for line in said if "looks odd" in line] == [1]
    kept = json.loads(ablate("status", "operator=SSA", "--json", "--campaign", tmp_path).out)
    assert [*kept["data"]["trials"]] == [made.line("SSA", 0)["trial"]]
