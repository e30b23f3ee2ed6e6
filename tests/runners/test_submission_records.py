"""Records of submissions that cannot be read: told in a sentence, and no reason for anything else to stop."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm
from toy_campaign import toy_grid
from toy_training import ENTRY

from grid.errors import StoreError
from runners.attempts.manifest import submission_id, trial_lines, write_submission
from runners.attempts.submission_record import (
    Array,
    ResourceClass,
    Submission,
    Unreadable,
    read_submission_record,
    record_run,
    submission_records,
    write_submission_record,
)
from runners.attempts.worker import Job
from runners.execution.local_runs import runs_here
from runners.slurm.scheduler import SlurmScheduler as Scheduler
from runners.slurm.spec import Slurm
from runners.slurm.submit.submit import Drafter, SubmitOptions, SubmittedJobs, submit
from store.files.atomic import read_json, write_json
from store.files.layout import Layout
from store.files.trial_status import pid_space, process_started

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
    """Texts of a damaged record, by what is wrong."""
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
    run = record(NEW, machine="local", **about)
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
        assert runs_here(layout) == [run]
        with pytest.raises(StoreError, match=r"update ablate" if damage == "newer" else r"submission\.json"):
            read_submission_record(layout, OLD)


def test_a_run_in_another_container_is_not_one_of_this(tmp_path: Path) -> None:
    submission = submission_id()
    write_submission(Layout(tmp_path), submission, trial_lines(toy_grid()))
    ours = record_run(Layout(tmp_path), Job(tmp_path, submission), "inline")
    assert (ours.pid_space, ours.process) == (pid_space(), os.getpid())
    assert replace(ours, pid_space="another").process is None


def queue(root: Path) -> tuple[SubmittedJobs, list[str]]:
    """Queue trials; return them and the warnings, without the one that nodes may not see a temporary directory."""
    told: list[str] = []
    drafter = Drafter(root, [toy_grid()], Slurm(gpus=0, time="1h", workers=2), Scheduler(), SubmitOptions(entry=ENTRY))
    found = submit(drafter, told.append)
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
    if damage == "cancellation":  # its jobs stay held
        assert first.record is not None
        write_submission_record(layout, replace(first.record, released=False))
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
    assert read_submission_record(layout, name).released == (damage != "cancellation")
