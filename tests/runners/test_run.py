"""A run computes what is missing, once, writes down what it will do before it does it, and shows its progress."""

import io
import json
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from real_spec import real_spec
from rich.console import Console
from synthetic import write_end
from toy_campaign import QUIET, run_quietly, tables, toy_grid
from warm import warm_server

from ablate.grid import Grid
from ablate.grid.durations import format_duration, format_hours
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.claims import Claim, claim
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.attempts.worker import Outcome
from ablate.runners.execution import Inline, Local, Machine
from ablate.runners.execution.progress import GridMember, ProgressDisplay, Tally, progress_line, render
from ablate.runners.execution.run import Interrupts, RunResult, run_campaign
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import State
from ablate.store.store import Store


def options(**changes: Any) -> RunRequest:
    return RunRequest(**{**vars(QUIET), **changes})


def counts(result: RunResult) -> tuple[int, ...]:
    return (result.done, result.failed, result.stopped, result.skipped, result.skipped_failed)


def attempts(root: Path) -> int:
    layout = Layout(root)
    return sum(len(layout.attempts(key)) for key in layout.trial_keys())


def claim_first(layout: Layout, grid: Grid, **about: Any) -> str:
    key = next(iter(grid.trials())).key
    usual = dict.fromkeys(("submission", "worker", "path", "device", "threads", "code"))
    assert isinstance(claim(layout, key, {**usual, **about}, retry=False), Claim)
    return key


def test_a_second_run_trains_only_what_a_changed_grid_adds(tmp_path: Path) -> None:
    first = run_quietly(tmp_path, toy_grid())
    assert counts(first) == (6, 0, 0, 0, 0)
    before = tables(tmp_path)
    second = run_quietly(tmp_path, toy_grid())
    assert counts(second) == (0, 0, 0, 6, 0)
    assert second.submission is None
    assert Layout(tmp_path).submission_ids() == [first.submission]
    assert tables(tmp_path) == before
    assert counts(run_quietly(tmp_path, toy_grid(seeds=range(4)))) == (2, 0, 0, 6, 0)
    assert attempts(tmp_path) == 8


def test_a_trial_that_two_grids_share_is_trained_once(tmp_path: Path) -> None:
    grids = [toy_grid("one", seeds=(0, 1)), toy_grid("two", seeds=(1, 2))]
    chosen = frozenset([planned.key for planned in grids[0].trials()][1:3])
    assert counts(run_quietly(tmp_path, grids[0], only=chosen)) == (2, 0, 0, 0, 0)
    assert set(Layout(tmp_path).trial_keys()) == chosen
    assert len(Layout(tmp_path).grid_trials("one").read_text().splitlines()) == 4  # its grid is planned as it was
    assert counts(run_campaign(tmp_path, grids, Inline(), QUIET)) == (4, 0, 0, 2, 0)
    assert attempts(tmp_path) == 6
    assert len({(row[0], row[4]) for row in tables(tmp_path)["final"]}) == 8


def test_failed_trials_are_tried_again_only_when_asked(tmp_path: Path) -> None:
    grid = toy_grid(fates=["ok", "raises"], seeds=[0])
    assert counts(run_quietly(tmp_path, grid)) == (2, 2, 0, 0, 0)
    assert counts(run_quietly(tmp_path, grid)) == (0, 0, 0, 2, 2)
    assert counts(run_quietly(tmp_path, grid, retry=True)) == (0, 2, 0, 2, 0)
    assert attempts(tmp_path) == 2 + 2 * 2


def test_grids_and_manifest_are_written_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[object]] = []

    def look(self: Inline, job: Any, rows: Any, overseer: Any) -> None:
        layout = Layout(tmp_path)
        record = read_submission_record(layout, job.submission)
        seen.append([*layout.grid_names(), *layout.submission_ids(), record.host, record.process, record.ended])
        assert len(layout.manifest(job.submission).read_bytes().splitlines()) == rows.rows_left() == 6
        assert not layout.trials.exists()

    monkeypatch.setattr(Inline, "run", look)
    result = run_quietly(tmp_path, toy_grid())
    assert seen == [["toy", result.submission, socket.gethostname(), os.getpid(), None]]
    assert counts(result) == (0, 0, 6, 0, 0)
    assert read_submission_record(Layout(tmp_path), result.submission).process is None


def test_grids_without_names_and_full_disks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for names, words in ((["a", "a"], "two grids .* 'a'"), ([], "no grid")):
        with pytest.raises(SpecError, match=words):
            run_campaign(tmp_path, [toy_grid(name) for name in names], Inline(), QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=10, used=9, free=1))
        with pytest.raises(EnvironmentProblem, match="MB of free disk, and a campaign needs 64 MB"):
            run_quietly(tmp_path, toy_grid())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path / "file", "a file stands where a directory"), (Path("/proc/c"), "cannot create")):
        with pytest.raises(EnvironmentProblem, match=words):
            run_quietly(place, toy_grid())


def test_an_interrupt_after_the_last_trial_interrupts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.store.ingest.ingest.ingest", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    result = run_quietly(tmp_path, toy_grid(), land_every_s=60)
    assert (result.done, result.interrupted) == (6, False)


def test_results_land_at_the_end_and_a_store_that_cannot_take_them_is_told_and_stops_nothing(tmp_path: Path) -> None:
    assert run_campaign(tmp_path, [toy_grid()], Inline(), options(land_every_s=60)).problems == ()
    with Store.open(tmp_path, refresh=False) as store:
        assert store.sql("SELECT count(*) FROM v_final WHERE name = 'mse'").item() == 6
    broken = tmp_path / "broken"
    (broken / "store").mkdir(parents=True)
    (broken / "store" / "live.duckdb").write_bytes(b"no database" * 1000)
    result = run_campaign(broken, [toy_grid()], Inline(), options(land_every_s=0.01))
    assert result.done == 6
    assert len(result.problems) == 1
    assert "results are on disk but not in the store yet" in result.problems[0]


@pytest.mark.parametrize("machine", [Inline(), Local(1, start=warm_server)], ids=["inline", "local"])
def test_a_run_here_goes_on_with_half_the_micro_batch(tmp_path: Path, machine: Machine) -> None:
    grid, layout = toy_grid(seeds=[0], fates=["too_big"], fits=4), Layout(tmp_path)
    assert counts(run_quietly(tmp_path, grid)) == (0, 2, 0, 0, 0)
    assert counts(run_quietly(tmp_path, grid, machine, retry=True, oom="halve")) == (2, 0, 0, 0, 0)
    for key in layout.trial_keys():
        states = trial_state(layout, key).attempts
        tried = [(state.start["accumulate"], state.end and state.end["status"]) for state in states]
        assert tried == [(1, "failed"), (2, "failed"), (4, "ok")]


def test_clocks_that_differ_start_no_workers_over_and_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner's host stamps signs of life an hour ago: by the wall clock it is dead, by an observer's it is not."""
    grid, layout = toy_grid(seeds=[0]), Layout(tmp_path)
    first = claim_first(layout, grid, host="elsewhere", heartbeat_s=600.0)
    runs, beats = 0, 0
    train = Inline.run

    def count(self: Inline, job: Any, rows: Any, overseer: Any) -> None:
        nonlocal runs
        runs += 1
        assert runs == 1
        train(self, job, rows, overseer)

    def beat(seconds: float) -> None:
        nonlocal beats
        beats += bool(seconds)
        old = time.time() - 5000 + beats
        os.utime(layout.heartbeat(first, 1), (old, old))
        if beats == 5:
            write_end(layout, first, 1)

    beat(0)
    monkeypatch.setattr(Inline, "run", count)
    monkeypatch.setattr("ablate.runners.execution.run.time.sleep", beat)
    assert counts(run_quietly(tmp_path, grid)) == (2, 0, 0, 0, 0)
    assert beats >= 5


def test_a_live_attempt_of_another_run_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, layout = toy_grid(seeds=[0]), Layout(tmp_path)
    first = claim_first(layout, grid)
    waits: list[float] = []

    def end_it(seconds: float) -> None:
        waits.extend([seconds] if seconds else [])
        if len(waits) == 2:  # the other run is killed: its process is another one than recorded
            start = read_json(layout.start(first, 1))
            layout.start(first, 1).write_text(json.dumps({**start, "pid_started": 1}))

    monkeypatch.setattr("ablate.runners.execution.run.time.sleep", end_it)
    assert counts(run_quietly(tmp_path, grid)) == (2, 0, 0, 0, 0)
    assert len(waits) == 2
    assert [found.attempt for found in trial_state(layout, first).attempts] == [1, 2]


CELLS = [("g", "a"), ("g", "b")]


def begun() -> Tally:
    return Tally(Counter(CELLS * 2), [GridMember(cell, seed) for seed in (0, 1) for cell in CELLS])


def shown(terminal: bool, act: Callable[[ProgressDisplay], None], state: Tally) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    with ProgressDisplay(state, console=console) as progress:
        act(progress)
    return out.getvalue()


def test_the_tally_counts_ends_cells_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("ablate.runners.execution.progress.time.monotonic", lambda: now)
    for outcome, ended in ((State.DONE, 1), (State.FAILED, 1), (State.RUNNING, 0), (State.STOPPED, 0)):
        state = begun()
        state.begin(0, 0)
        state.came_back(Outcome(0, outcome))
        assert (state.ended, state.running, state.cells_done) == (ended, {}, 0)
    state = begun()
    assert state.seconds_left() is None
    state.begin(0, 0)
    state.begin(2, 50)
    assert state.seconds_left() is None
    state.came_back(Outcome(0, "done"))
    state.advance(2, 75, 100, 0.123456)  # half of what this attempt has to do
    state.came_back(Outcome(1, "failed"))
    now = 30.0
    assert state.seconds_left() == pytest.approx(30.0 * (4 - 2.5) / 2.5)
    assert all(words in progress_line(state) for words in ("2/4 trials", "18 s left", "50% loss 0.1235"))
    out = io.StringIO()
    Console(file=out, width=100).print(render(state))
    assert all(words in out.getvalue() for words in ("step 75/100", "loss 0.1235", "1 running · 1 with failures"))
    state.came_back(Outcome(2, "done"))
    assert (state.cells_done, state.cells_failed, state.cells_running) == (1, 1, 0)


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("ablate.runners.execution.progress.time.monotonic", lambda: now[0])

    def act(progress: ProgressDisplay) -> None:
        for at in (1.0, 9.0, 10.0, 10.5, 19.0, 21.0, 71.0):
            now[0] = at
            progress.tick()

    said = shown(False, act, begun())
    assert said.count("0/4 trials") == 3  # at 10 s, once a minute at 71 s, at the end


def test_on_a_terminal_the_display_redraws_itself_and_notes_stay() -> None:
    text = shown(True, lambda progress: progress.note("[red]worker[/red] 3 died"), begun())
    assert "[red]worker[/red] 3 died" in text
    assert "\x1b[" in text
    words = {None: "?", 0.4: "0 s", 59.6: "1 min 00 s", 75: "1 min 15 s", 3900: "1 h 05 min", 5.8125e6: "67 d 6 h"}
    assert {seconds: format_duration(seconds) for seconds in words} == words
    hours = {0: "0 CPU-h", 0.0042: "15 CPU-s", 0.02: "1.2 CPU-min", 0.5: "30 CPU-min", 2.52: "2.5 CPU-h"}
    assert {number: format_hours(number, "CPU-h") for number in hours} == hours
    assert format_hours(0.0042) == "0.0042"


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends_unless_it_is_ignored(name: signal.Signals) -> None:
    told: list[bool] = []
    inherited = signal.signal(name, signal.SIG_IGN)
    try:
        with Interrupts(pytest.fail) as interrupts:
            signal.raise_signal(name)
            assert not interrupts.requested
        signal.signal(name, signal.default_int_handler)
        with Interrupts(lambda: told.append(True)) as interrupts:
            signal.raise_signal(name)
            assert (interrupts.requested, told) == (True, [True])
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(name)
        assert signal.getsignal(name) is signal.default_int_handler
    finally:
        signal.signal(name, inherited)


def test_a_short_trial_syncs_four_times_and_leaves_two_files_and_out_of_the_grid_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Callable
) -> None:
    """Three shards and the end; start and end. Shards are joined later (`tests/store/test_compaction.py`)."""
    synced: list[str] = []

    def note(descriptor: int, sync: Callable[[int], None] = os.fsync) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.extend([path.name.split(".tmp.")[0]] if {"trials", "spool"} & set(path.parts) else [])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    spec, root = tmp_path / "spec.py", tmp_path / "c"
    for seeds, told in ((4, False), (1, True)):
        spec.write_text(
            real_spec("small", training="steps=1", execution="checkpoint_s=600", operators="softmax()", seeds=seeds)
        )
        said = ablate("run", spec, "--campaign", root, "--on", "inline", "--replace").err
        assert ("3 finished trials are in no grid any more" in said) == told
    assert sorted(synced) == sorted([*(path.name for path in Layout(root).shards()), *["end.json"] * 4])
    assert len(synced) <= 4 * 4
    left = [path.name for path in (root / "trials").rglob("*") if path.is_file()]
    assert sorted(left) == ["end.json"] * 4 + ["start.json"] * 4
