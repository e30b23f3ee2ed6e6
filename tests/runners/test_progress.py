"""The progress display of a run."""

import io
import signal
from collections.abc import Callable

import pytest
from rich.console import Console

from runners.attempts.worker import Outcome
from runners.execution.progress import GridMember, ProgressDisplay, Tally, progress_line, render, tally
from runners.execution.run import Interrupts
from runners.output import duration

CELLS = [("g", "a"), ("g", "b")]


def begun() -> Tally:
    """Two cells of two trials each."""
    return tally(CELLS * 2, [GridMember(cell, seed) for seed in (0, 1) for cell in CELLS])


def shown(terminal: bool, act: Callable[[ProgressDisplay], None], state: Tally) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    with ProgressDisplay(state, console=console) as progress:
        act(progress)
    return out.getvalue()


def test_a_cell_is_done_when_all_its_trials_are_and_only_what_has_an_end_counts_as_ended() -> None:
    state = begun()
    for row, status in enumerate(("ok", "ok", "ok", "failed")):
        state.begin(row, 0)
        state.came_back(Outcome(row, status))  # type: ignore[arg-type]  # the loop's words are outcomes
    assert (state.cells_done, state.cells_failed, state.cells_running, state.ended) == (1, 1, 0, 4)
    for came, ended in (("was_ok", 1), ("was_failed", 1), ("held", 0), ("stopped", 0)):
        state = begun()
        state.begin(0, 0)
        state.came_back(Outcome(0, came))  # type: ignore[arg-type]
        assert (state.ended, state.running) == (ended, {})


def test_the_time_left_follows_from_the_work_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("runners.execution.progress.time.monotonic", lambda: now)
    state = begun()
    assert state.seconds_left() is None
    state.begin(0, 0)
    state.begin(1, 50)
    assert state.seconds_left() is None
    state.came_back(Outcome(0, "ok"))
    state.advance(1, 75, 100, 0.5)  # half of what this attempt has to do
    now = 30.0
    assert state.seconds_left() == pytest.approx(30.0 * (4 - 1.5) / 1.5)


def test_a_line_and_the_live_display_show_every_running_trial() -> None:
    state = begun()
    state.begin(0, 0)
    state.advance(0, 25, 100, 0.123456)
    state.came_back(Outcome(1, "failed"))
    line = progress_line(state)
    assert line.startswith("1/4 trials · cells: 0/2 done, 1 with failures, 1 running · ")
    assert line.endswith("a seed 0 25% loss 0.1235")
    out = io.StringIO()
    Console(file=out, width=100).print(render(state))
    assert all(words in out.getvalue() for words in ("step 25/100", "loss 0.1235", "1 running · 1 with failures"))


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("runners.execution.progress.time.monotonic", lambda: now[0])

    def act(progress: ProgressDisplay) -> None:
        for at in (1.0, 9.0, 10.0, 10.5, 19.0, 21.0, 71.0):
            now[0] = at
            progress.tick()
        progress.waits_for = "workers: 1 pending (Resources)"
        for at in (82.0, 93.0):
            now[0] = at
            progress.tick()

    said = shown(False, act, begun())
    assert said.count("0/4 trials") == 4  # at 10 s, once a minute at 71 s, changed at 82 s, at the end
    assert said.count("0 running · workers: 1 pending (Resources) · ? left") == 2


def test_on_a_terminal_the_display_redraws_itself_and_notes_stay() -> None:
    text = shown(True, lambda progress: progress.note("[red]worker[/red] 3 died"), begun())
    assert "[red]worker[/red] 3 died" in text
    assert "\x1b[" in text
    words = {None: "?", 0.4: "0 s", 59.6: "1 min 00 s", 75: "1 min 15 s", 3900: "1 h 05 min"}
    assert {seconds: duration(seconds) for seconds in words} == words


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
