"""The live view: it says what status says, asks the scheduler once a minute, and holds nothing up."""

import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from submission_files import FIRST, HELD, RUNS, SECOND, SMALL, WAITS, Scripted, submit, write_record
from synthetic import Campaign, write_campaign, write_end, write_start

from ablate.runners.attempts.submission_record import Array
from ablate.runners.backends.backend import Submissions
from ablate.runners.backends.slurm.backend import SlurmBackend
from ablate.runners.backends.slurm.scheduler import RecentAnswers
from ablate.runners.cli.app import execute
from ablate.runners.monitoring.watch import WatchView, changes, read_view, render, show, views
from ablate.store.state import COUNTED

SSA = [("SSA", seed) for seed in range(4)]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(
        tmp_path, operators=("softmax", "SSA"), seeds=range(4), pending=set(SSA[1:]), running={SSA[0]}, **SMALL
    )


def end(campaign: Campaign, seed: int, **fields: object) -> None:
    key = campaign.line("SSA", seed)["trial"]
    write_start(campaign.layout, key, 1)
    write_end(campaign.layout, key, 1, **fields)


def test_it_goes_on_while_a_worker_waits_or_runs(campaign: Campaign) -> None:
    """Waiting workers retry failed trials, and nobody trains before they start."""
    submit(campaign, SSA[1:3])
    view = read_view(campaign.root, Scripted({"7_0": RUNS, "7_1": WAITS}))
    assert {state: n for state, n in view.states.items() if n} == {"done": 4, "running": 1, "queued": 3}
    assert sum(sum(each[state] for state in COUNTED) for each in view.data()["cells"]) == 8
    assert not view.over
    submit(campaign, SSA, submission=SECOND)
    for seed in range(4):
        end(campaign, seed, status="failed", reason="error", message="m")
    for tasks in ({"7_0": WAITS}, {"7_1": RUNS}):
        assert not read_view(campaign.root, Scripted(tasks)).over
    for others in ({}, {"7_0": HELD}, None):
        assert read_view(campaign.root, Scripted(others)).over
    running = Scripted({"7_0": RUNS, "7_1": RUNS})  # as the queue said a minute ago
    for submission in (FIRST, SECOND):
        assert not read_view(campaign.root, running).over
        write_record(campaign.layout, 0, submission=submission, left="done")
        assert not read_view(campaign.root, running).over
        write_record(campaign.layout, 1, submission=submission, left="cancelled")
    assert read_view(campaign.root, running).over


def test_time_left_is_the_work_ahead_shared_by_those_at_work(campaign: Campaign) -> None:
    """Trials took 2.5 s; each of two is at 30 of 60 steps after 100 s, and two more wait: (200 + 2 x 2.5) / 2."""
    for seed in (0, 1):
        key = campaign.line("SSA", seed)["trial"]
        write_start(campaign.layout, key, 1, started=time.time() - 100)
        campaign.layout.heartbeat(key, 1).write_text('{"step": 30, "steps": 60, "loss": 0.5}\n')
    assert read_view(campaign.root, Scripted()).left_s == pytest.approx(102.5, rel=0.1)


def test_without_a_worker_the_time_left_is_unknown_and_why_is_said(tmp_path: Path) -> None:
    for name, pending in (("idle", [("SSA", 1)]), ("ended", [])):
        write_campaign(tmp_path / name, operators=("softmax", "SSA"), seeds=range(2), pending=pending)
        view = read_view(tmp_path / name, Scripted())
        assert (view.left_s, view.ended) == (None, not pending)
        assert ("no worker" in view.left_words) == bool(pending)


def test_the_scheduler_is_asked_once_a_minute_and_its_last_answer_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("ablate.runners.backends.slurm.scheduler.time.monotonic", lambda: now[0])
    asked = Scripted({"7_0": RUNS})
    seldom = RecentAnswers(asked)
    seldom.max_age_s = 60.0
    for _ in range(90):  # a minute and a half of looks, a second apart
        assert seldom.read_queue([7], []).tasks == {"7_0": RUNS}
        now[0] += 1
    assert len(asked.asked) == 2
    asked.tasks = None
    now[0] += 60
    found = seldom.read_queue([7], [])
    assert found.tasks == {"7_0": RUNS}
    assert found.problem == "the controller is away"
    assert found.asked is not None


def test_of_jobs_that_are_new_the_scheduler_is_asked_at_once(campaign: Campaign) -> None:
    """The workers of a submission that is queued while somebody watches are not gone because nobody asked of them."""
    asked = Scripted({"7_0": RUNS, "7_1": RUNS, "8_0": WAITS})
    seldom = RecentAnswers(asked)
    seldom.max_age_s = 60.0
    submit(campaign, SSA[1:])
    assert {
        worker.standing
        for worker in read_view(campaign.root, Submissions({"slurm": SlurmBackend(seldom)}))
        .status.where.submissions[0]
        .workers
    } == {"running"}
    submit(campaign, [("SSA", 0)], submission=SECOND, classes=[(1, [Array(0, 1, 8)])])
    assert [
        worker.standing
        for worker in read_view(campaign.root, Submissions({"slurm": SlurmBackend(seldom)}))
        .status.where.submissions[1]
        .workers
    ] == ["queued"]
    seldom.read_queue([8], [])  # a part of what was asked
    assert len(asked.asked) == 2
    seldom.read_queue([7, 8], ["ablate-x"])
    assert len(asked.asked) == 3
    asked.tasks = None
    assert seldom.read_queue([7, 8, 9], []).asked is None  # the earlier answer does not cover job 9
    seldom.read_queue([9], [])
    assert len(asked.asked) == 4


def test_views_follow_files_until_all_has_ended(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks something happens; the last look is the one at which all have ended."""
    happens = iter([lambda: end(campaign, 0), lambda: end(campaign, 1, status="failed", reason="error", message="m")])

    def sleep(_: float) -> None:
        event = next(happens, None)
        if event is not None:
            event()
        else:
            for seed in (2, 3):
                end(campaign, seed)

    monkeypatch.setattr("ablate.runners.monitoring.watch.time.sleep", sleep)
    lines = list(changes(views(campaign.root, Scripted(), 1.0)))
    assert [re.findall(r"(\d+) (done|failed)", line)[:2] for line in lines] == [
        [("4", "done")],
        [("5", "done")],
        [("5", "done"), ("1", "failed")],
        [("7", "done"), ("1", "failed")],
    ]
    assert "1 x error: m" in lines[-1]


def test_without_a_terminal_it_is_a_line_per_change(campaign: Campaign) -> None:
    found = read_view(campaign.root, Scripted())
    later = found._replace(states={**found.states, "done": 5, "running": 0, "queued": 3})
    out = io.StringIO()
    show(iter([found, found, found._replace(left_s=9.0), later, later]), Console(file=out, width=60))
    assert len(out.getvalue().splitlines()) == 2


def test_the_display_has_cells_workers_pace_failures_and_hours(campaign: Campaign) -> None:
    submit(campaign, SSA[1:], budget={"hours": 200.0, "unit": "gpuh"})
    write_record(campaign.layout, 0, seconds=7200.0)
    end(campaign, 3, status="failed", reason="diverged", message="the loss was nan")
    key = campaign.line("SSA", 0)["trial"]
    campaign.layout.heartbeat(key, 1).write_text('{"step": 30, "steps": 60, "loss": 0.5}\n')
    found = read_view(campaign.root, Scripted({"7_0": RUNS, "7_1": WAITS}))
    out = io.StringIO()
    Console(file=out, width=160, force_terminal=True, color_system=None).print(render(found, 160))
    words = ["5/8", "SSA", "30/60", "steps/s", "2.0 of 200 GPU-h used", "Priority", "1 x diverged", "1 failed"]
    assert [each for each in words if each not in out.getvalue()] == []
    for width in (60, 80):
        *_, status = render(found, width).renderables  # type: ignore[union-attr]
        rows = [line.rstrip() for line in status.plain.splitlines() if "30/60" in line]  # type: ignore[union-attr]
        assert [len(row) <= width for row in rows] == [True]


def test_json_streams_an_object_per_look_and_ctrl_c_ends_it_well(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sleep(_: float) -> None:
        for seed in range(4):
            end(campaign, seed)

    def interrupted(*_: object) -> Iterator[WatchView]:
        raise KeyboardInterrupt
        yield

    here = ["--campaign", str(campaign.root)]
    monkeypatch.setattr("ablate.runners.monitoring.watch.time.sleep", sleep)
    assert execute(["status", "--watch", "--json", *here]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["schema"] == "ablate/watch/1"
    assert set(first["data"]["states"]) == set(COUNTED)
    assert last["data"]["states"]["done"] == 8
    monkeypatch.setattr("ablate.runners.monitoring.watch.views", interrupted)
    assert execute(["status", "--watch", *here]) == 0
    assert execute(["status", "--watch", "--every", "0", *here]) == 2
    assert "--every 0 " in capsys.readouterr().err
    assert execute(["status", "--watch", "--campaign", "nowhere"]) == 3
