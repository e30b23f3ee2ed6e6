"""Records of submissions and workers: damage is told, and who is at work, who has ended, what a spent budget leaves."""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm
from submission_files import FIRST, RUNS, SECOND, SMALL, Scripted, submit, write_record
from synthetic import Campaign, write_campaign, write_start
from toy_campaign import toy_grid

from ablate.grid.errors import SpecError, StoreError
from ablate.runners.attempts.manifest import submission_id, trial_lines, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import (
    Array,
    ResourceClass,
    Submission,
    Unreadable,
    read_submission_record,
    record_run,
    runs_at_work,
    submission_records,
    write_submission_record,
)
from ablate.runners.attempts.worker_records import Left
from ablate.runners.backends.backend import Standing
from ablate.runners.backends.slurm.scheduler import SlurmScheduler as Scheduler, TaskStatus
from ablate.runners.backends.slurm.spec import Slurm, read_budget
from ablate.runners.backends.slurm.submit.already_queued import queued_elsewhere
from ablate.runners.backends.slurm.submit.draft import Drafter
from ablate.runners.backends.slurm.submit.submit import SubmittedJobs, submit as queue_trials
from ablate.runners.monitoring.cancel import Cancelling
from ablate.runners.monitoring.trial_locations import TrialLocations, locate_trials
from ablate.runners.planning.worklist import GridTrial
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import pid_space, process_started
from ablate.store.store import Store

OLD, MINE, NEW = (f"20260101T00000{at}-00000{at}" for at in range(3))


def record(submission: str, **fields: Any) -> Submission:
    classes = (ResourceClass("c0", (0, 6), {"gpus": 0}, 2, (Array(0, 2, 7),)),)
    usual = {"machine": "slurm", "written": 1.5, "job": {"retry": False}, "classes": classes}
    return Submission(submission, **{**usual, **fields})


def published(layout: Layout, *records: Submission) -> None:
    for each in records:
        write_submission(layout, each.submission, trial_lines(toy_grid()))
        write_submission_record(layout, each)


def damages(whole: dict[str, Any]) -> dict[str, str]:
    spoiled = {
        "newer": {**whole, "schema": 2},
        "more": {**whole, "more": 1},
        "less": {name: value for name, value in whole.items() if name != "classes"},
        "number": {**whole, "written": "soon"},
        "rows": {**whole, "classes": [{**whole["classes"][0], "rows": [0]}]},
        "class": {**whole, "classes": ["c0"]},
        "job": {**whole, "job": None},
        "another's": {**whole, "submission": NEW},
    }
    return {"torn": '{"schema": 1, "subm', **{name: json.dumps(data) for name, data in spoiled.items()}}


DAMAGES = damages({**json.loads(json.dumps(record(OLD).__dict__, default=vars)), "submission": OLD})


def test_a_record_is_read_as_it_was_written_and_without_what_later_versions_added(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    written = record(OLD, budget={"hours": 2.0, "unit": "gpuh"}, host="h", pid=4, pid_started=9, ended=3.0)
    write_submission_record(layout, written)
    assert read_submission_record(layout, OLD) == written
    path = layout.submission_record(OLD)
    write_json(path, {name: value for name, value in read_json(path).items() if name not in ("host", "ended")})
    assert read_submission_record(layout, OLD).host is None


def test_all_records_are_walked_and_a_damaged_one_says_what_is_wrong(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    about = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": process_started(os.getpid())}
    run = record(NEW, machine="local", classes=(), **about)
    published(layout, record(OLD), record(MINE), run)
    write_submission(layout, "20250101T000000-000000", trial_lines(toy_grid()))  # from before there were records
    for damage, text in DAMAGES.items():
        layout.submission_record(OLD).write_text(text)
        first, *others = submission_records(layout)
        assert isinstance(first, Unreadable), damage
        place = layout.submission_record(OLD)
        assert first.in_words().startswith(f"what became of submission {OLD} is not known: {place}")
        assert "\n" not in first.in_words()
        assert others == [record(MINE), run]
        assert runs_at_work(layout) == [run]
        with pytest.raises(StoreError, match=r"update ablate" if damage == "newer" else r"submission\.json"):
            read_submission_record(layout, OLD)


def test_a_run_in_another_container_is_not_one_of_this(tmp_path: Path) -> None:
    submission = submission_id()
    write_submission(Layout(tmp_path), submission, trial_lines(toy_grid()))
    ours = record_run(Layout(tmp_path), RunRequest(tmp_path, submission), "inline")
    assert (ours.pid_space, ours.process) == (pid_space(), os.getpid())
    assert replace(ours, pid_space="another").process is None


def queue(root: Path) -> tuple[SubmittedJobs, list[str]]:
    """Queue trials; return them and the warnings, without the one that nodes may not see a temporary directory."""
    told: list[str] = []
    drafter = Drafter(RunRequest(root), [toy_grid()], Slurm(gpus=0, time="1h", workers=2), Scheduler())
    found = queue_trials(drafter, told.append)
    return found, [note for note in (*told, *found.draft.notes) if "nodes may not see" not in note]


@pytest.mark.parametrize("damage", ["torn", "newer"])
def test_a_damaged_record_is_told_and_the_trials_are_queued(tmp_path: Path, slurm: PretendSlurm, damage: str) -> None:
    root = tmp_path / "campaign"
    layout = Layout(root)
    published(layout, record(OLD))
    layout.submission_record(OLD).write_text(DAMAGES[damage])
    found, told = queue(root)
    assert found.draft.trials == 6
    (note,) = told
    assert note.startswith(f"what became of submission {OLD} is not known")
    assert layout.submission_record(OLD).read_text() == DAMAGES[damage]
    again, told = queue(root)
    assert (again.draft.trials, told) == (0, [note])  # the trials of the first are known
    assert list(slurm.jobs()) == [1]


@pytest.mark.parametrize("damage", ["torn", "gone", "cancellation"])
def test_a_damaged_manifest_or_cancellation_of_others_is_told(tmp_path: Path, slurm: PretendSlurm, damage: str) -> None:
    root = tmp_path / "campaign"
    first, _ = queue(root)
    name, layout = first.draft.submission, Layout(root)
    if damage == "cancellation":
        (layout.submission(name) / "cancelled.json").write_text("{")
    elif damage == "torn":
        layout.manifest_index(name).write_bytes(b"123")
    else:
        layout.manifest_index(name).unlink()
    found, (note,) = queue(root)
    assert found.draft.trials == 6
    assert name in note
    assert ("which trials" in note) == (damage != "cancellation")
    assert list(slurm.jobs()) == [1, 2]


SSA = [("SSA", seed) for seed in range(4)]
ELSEWHERE = {"machine": "local", "host": "elsewhere", "pid": 7, "pid_started": 7}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(tmp_path, operators=("SSA",), seeds=range(4), pending=set(SSA), **SMALL)


def key(campaign: Campaign, seed: int) -> str:
    return str(campaign.line("SSA", seed)["trial"])


def begin(campaign: Campaign, **about: Any) -> None:
    write_start(campaign.layout, key(campaign, 0), 1, submission=FIRST, **about)
    campaign.layout.heartbeat(key(campaign, 0), 1).write_text('{"step": 30, "steps": 60, "loss": 0.5}\n')


def look(campaign: Campaign, tasks: Mapping[str, TaskStatus] | None = None) -> TrialLocations:
    with Store.open(campaign.root) as store:
        return locate_trials(store, Scripted(tasks))


def states(campaign: Campaign, tasks: Mapping[str, TaskStatus] | None = None) -> list[str]:
    trials = look(campaign, tasks).trials
    return [trials[key(campaign, seed)].state for seed in range(4)]


def queued(campaign: Campaign, tasks: Mapping[str, TaskStatus] | None, *at_work: int) -> set[str]:
    """The trials that need not be queued again."""
    wanted = [
        GridTrial(key(campaign, n), "g", "c", "SSA", "SSA", "o", n, n, "running" if n in at_work else "pending")
        for n in range(4)
    ]
    return queued_elsewhere(campaign.layout, wanted, Scripted(tasks), {}).trials


@pytest.mark.parametrize(
    ("left", "tasks", "standing"),
    [
        ("time", None, "unknown"),  # it is queued again, or was
        ("error", None, "unknown"),
        ("done", None, "ended"),
        ("cancelled", None, "ended"),
        ("time", {}, "ended"),
        ("time", {"7_0": RUNS}, "running"),
        (None, {}, "lost"),
        (None, None, "running"),  # its record is fresh
    ],
)
def test_a_worker_that_left_has_ended_once_the_queue_says_so_or_nobody_queues_it_again(
    campaign: Campaign, left: Left | None, tasks: Mapping[str, TaskStatus] | None, standing: Standing
) -> None:
    submit(campaign, SSA)
    write_record(campaign.layout, 0, left=left)
    assert Scripted(tasks).list(campaign.layout)[0][0].workers[0].standing == standing


def test_a_record_or_a_snapshot_that_is_gone_is_told(campaign: Campaign) -> None:
    gone = submit(campaign, SSA, snapshot={"tar": "0" * 32})
    layout, asked = campaign.layout, Scripted({"7_0": RUNS})
    (note,) = asked.list(layout)[1]
    assert note.startswith(f"the snapshot {layout.snapshot_tar('0' * 32)} is missing")
    layout.snapshots.mkdir()
    layout.snapshot_tar("0" * 32).touch()
    assert asked.list(layout)[1] == []
    layout.submission_record(FIRST).unlink()
    assert asked.list(layout) == ([], [])  # as a release that wrote no records, or a local run
    (layout.submission(FIRST) / "logs").mkdir()
    (note,) = look(campaign).notes
    assert note.startswith(f"what became of submission {FIRST} is not known: there is no file")
    assert f"scancel --name={gone.job_name}" in note


def test_a_spent_budget_leaves_trials_to_the_next_run_and_calls_none_of_them_queued(campaign: Campaign) -> None:
    """One worker is at the first trial and has used two hours; another has left."""
    submit(campaign, SSA, budget={"hours": 3.0, "unit": "gpuh"})
    write_record(campaign.layout, 0, seconds=7200.0)
    write_record(campaign.layout, 1, seconds=3600.0, left="budget")
    place = {"scheduler": "slurm", "job": "7_0", "restarts": 0, "node": "n0", "devices": "0"}
    begin(campaign, host="n0", pid=4, pid_started=4, place=place, started=time.time())
    runs = {"7_0": RUNS}
    for tasks in (runs, None):  # nobody need be asked for what nobody will begin
        assert queued(campaign, tasks, 0) == {key(campaign, 0)}
    assert states(campaign, runs) == ["running", "pending", "pending", "pending"]
    write_record(campaign.layout, 0, seconds=7199.0)
    assert len(queued(campaign, runs, 0)) == 4
    assert states(campaign, runs) == ["running", "queued", "queued", "queued"]
    assert not Scripted(runs).list(campaign.layout)[0][0].spent


def test_a_budget_is_hours_of_a_unit() -> None:
    for text, hours, unit in (("200gpuh", 200.0, "gpuh"), ("12CPU-h", 12.0, "cpuh"), (" 0.5 GPUh ", 0.5, "gpuh")):
        assert read_budget(text) == {"hours": hours, "unit": unit}
    for text in ("", "200", "gpuh", "90m", "200h", "-1gpuh", "0gpuh", "1e3gpuh", "nan gpuh", "1 2cpuh"):
        with pytest.raises(SpecError, match=r"such as 200gpuh or 40cpuh"):
            read_budget(text)


def test_a_run_on_another_host_has_its_trials_queued_until_it_was_quiet_for_long(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees its process, so its record tells."""
    record = submit(campaign, SSA[:2], written=time.time() - 5, **ELSEWHERE)
    assert states(campaign) == ["queued", "queued", "pending", "pending"]
    assert look(campaign).notes == ()
    cancelling = Cancelling(campaign.layout, [], runs_at_work(campaign.layout), Scripted())
    cancelling.cancel_submissions()
    assert f"run {FIRST} is on elsewhere" in cancelling.problems[0]
    write_submission_record(campaign.layout, replace(record, written=time.time() - 7200))
    assert states(campaign) == ["pending"] * 4
    (note,) = look(campaign).notes
    assert f"whether run {FIRST} on elsewhere is still at work is unknown: its last sign of life is 2 h" in note
    assert runs_at_work(campaign.layout) == []
    monkeypatch.setattr("ablate.runners.attempts.submission_record._MOST_LOOK_S", -1.0)
    assert [run.submission for run in runs_at_work(campaign.layout)] == [FIRST]  # not all of its trials were read
    write_submission_record(campaign.layout, replace(record, ended=time.time() - 7000))
    assert look(campaign).notes == ()


def test_a_heartbeat_is_a_sign_of_a_run_on_another_host(campaign: Campaign) -> None:
    """An attempt with rare heartbeats counts as gone, and its run may be at the next trial."""
    submit(campaign, SSA[:2], written=time.time() - 7200, **ELSEWHERE)
    submit(campaign, SSA[2:], submission=SECOND, written=time.time() - 7200, **ELSEWHERE)
    begin(campaign, host="elsewhere", pid=7, pid_started=7, heartbeat_s=5.0, started=time.time() - 7000)
    os.utime(campaign.layout.heartbeat(key(campaign, 0), 1), (time.time() - 100,) * 2)
    assert states(campaign) == ["queued", "queued", "pending", "pending"]
    (note,) = look(campaign).notes
    assert SECOND in note
