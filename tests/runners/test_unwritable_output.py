"""Output that cannot be written stops no trial, and every exception becomes a record."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import toy_faults
from toy_campaign import toy_grid

from ablate.runners.processes.failure import failure_of
from ablate.runners.processes.training_context import Diverged
from ablate.store.files.error_texts import MOST_MESSAGE, MOST_TRACEBACK, limit_text
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import TrialState, trial_state
from ablate.store.store import Store

RUN = Path(toy_faults.__file__).with_name("toy_run.py")


def run(root: Path, train: str, workers: int, shell: str, seeds: int = 3, **environ: str) -> int:
    """Run the grid of toys with its output as `shell` says; return the exit code."""
    about = {"root": str(root), "grid": {"seeds": [*range(seeds)]}, "workers": workers, "land": 0.1, "train": train}
    command = ["bash", "-c", f'exec "$@" {shell}', "bash", sys.executable, str(RUN), json.dumps(about)]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, env={**sys_environ(), **environ}).returncode


def sys_environ() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": f"{RUN.parent}:{RUN.parents[1]}/src"}


def states(root: Path) -> dict[int, list[TrialState]]:
    """The states of all trials, by seed."""
    found: dict[int, list[TrialState]] = {}
    for planned in toy_grid(seeds=range(9)).trials():
        found.setdefault(planned.trial.data()["seed"], []).append(trial_state(Layout(root), planned.trial.key))
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shell", [">/dev/full 2>&1", ">&- 2>&-"])
def test_a_full_or_closed_output_stops_no_trial(tmp_path: Path, workers: int, shell: str) -> None:
    code = run(tmp_path / "c", "talkative", workers, shell)
    found = states(tmp_path / "c")
    assert [state.state for seed in range(3) for state in found[seed]] == ["done"] * 4 + ["failed"] * 2
    assert [len(state.attempts) for seed in range(3) for state in found[seed]] == [1] * 6
    assert code == 4
    assert {(state.ended.end or {})["reason"] for state in found[2] if state.ended} == {"error"}


@pytest.mark.parametrize("kind", ["full", "directory"])
def test_a_log_that_cannot_be_written_stops_no_trial(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "log"
    log.mkdir() if kind == "directory" else log.symlink_to("/dev/full")
    code = run(tmp_path / "c", "talkative", 1, "2>&1", LOG=str(log))
    found = states(tmp_path / "c")
    assert [state.state for seed in range(3) for state in found[seed]] == ["done"] * 4 + ["failed"] * 2
    assert [len(state.attempts) for seed in range(3) for state in found[seed]] == [1] * 6
    assert code == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_every_exception_becomes_a_record_of_limited_length(tmp_path: Path, workers: int) -> None:
    many = len(toy_faults.ERRORS)
    assert run(tmp_path / "c", "unprintable", workers, "2>&1", seeds=many + 1) == 4
    found = states(tmp_path / "c")
    assert [state.state for state in found[many]] == ["done", "done"]
    for seed in range(many):
        for state in found[seed]:
            end = state.attempts[0].end
            assert (state.state, len(state.attempts)) == ("failed", 1)
            assert end is not None
            assert end["reason"] == "error"
            assert end["fingerprint"]
            assert len(end["message"]) <= MOST_MESSAGE
            assert len(end["traceback"]) <= MOST_TRACEBACK
    with Store.open(tmp_path / "c") as store:
        assert store.failures("toy")["n"].sum() == 2 * many
        assert store.damage() == []


def test_a_text_that_was_cut_says_how_much() -> None:
    text = "".join(chr(0x4E00 + at % 9973) for at in range(50_000))
    cut = limit_text(text, 1000)
    begin, _, rest = cut.partition(" [... ")
    number, _, end = rest.partition(" characters cut ...] ")
    assert (text[: len(begin)], text[-len(end) :]) == (begin, end)
    assert len(begin) + int(number) + len(end) == len(text)
    assert len(cut) <= 1000
    assert limit_text(cut, 1000) == cut


def test_a_divergence_is_told_as_it_is() -> None:
    assert failure_of(Diverged(7, float("nan"))).reason == "diverged"
