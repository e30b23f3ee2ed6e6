"""However a run is killed, running it again gives the tables of a run that was never disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import run_quietly, tables, toy_grid
from warm import Warm

from store.files.layout import Layout
from store.files.trial_status import process_started, trial_state

TESTS = Path(__file__).resolve().parent.parent
KILLS = 4
"""Per machine; each hits a live run."""
ROW = 3
"""Most in one campaign: a trial over which five workers in a row vanish without a checkpoint has failed."""
GRID: dict[str, Any] = {"seeds": [0, 1, 2], "steps": 40, "fate_at": 100, "step_s": 0.004, "checkpoint_s": 0.02}


class Runs:
    """Starts whole runs, a parent, a fork server and workers, each in a process group of its own."""

    def __init__(self) -> None:
        self._begun: dict[int, Warm] = {}

    def start(
        self, root: Path, *, workers: int = 2, land: float | None = None, said: Path | None = None, **grid: Any
    ) -> int:
        request = {"root": str(root), "grid": {**GRID, **grid}, "workers": workers, "land": land}
        command = [sys.executable, str(TESTS / "toy_run.py"), json.dumps(request)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
        with (said or Path(os.devnull)).open("ab") as stderr:
            run = Warm(command, env=environment, stderr=stderr if said else None, start_new_session=True)
        self._begun[run.pid] = run
        return run.pid

    def close(self) -> None:
        for run in self._begun.values():
            run.kill()
            run.wait()


@pytest.fixture
def launcher() -> Iterator[Runs]:
    found = Runs()
    yield found
    found.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    root = tmp_path_factory.mktemp("undisturbed")
    assert run_quietly(root, toy_grid(**{**GRID, "step_s": 0.0})).ok == 6
    found = tables(root)
    found["trial"] = [(key, None, *rest) for key, _, *rest in found["trial"]]  # the spec says step_s
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"waited 120 s for {what}"
        time.sleep(0.005)


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: process_started(pid) is None, f"the end of process {pid}")


def live_starts(root: Path) -> list[dict[str, Any]]:
    """Start records of live attempts."""
    states = (trial_state(Layout(root), key) for key in Layout(root).trial_keys())
    return [state.live.start for state in states if state.live is not None]


def wait_for_starts(root: Path, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(live_starts(root)) >= count, f"{count} attempts")
    return live_starts(root)


def attempts(root: Path) -> list[int]:
    return [len(Layout(root).attempts(key)) for key in Layout(root).trial_keys()]


def assert_equal_to(undisturbed: dict[str, list[tuple[Any, ...]]], root: Path) -> None:
    found = tables(root)
    found["trial"] = [(key, None, *rest) for key, _, *rest in found["trial"]]
    assert found == undisturbed
    assert [planned for _, _, planned, ok, _ in found["progress"] if planned == ok] == [3, 3]


@pytest.mark.parametrize("workers", [0, 2], ids=["inline", "local"])
def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(
    tmp_path: Path, launcher: Runs, undisturbed: dict[str, list[tuple[Any, ...]]], workers: int
) -> None:
    """The whole group or its parent alone dies by SIGKILL; its workers do not outlive it."""
    chance = random.Random(f"kill {workers}")
    killed = campaigns = resumed = 0
    while killed < KILLS:
        root = tmp_path / str(campaigns)
        done, most = False, min(KILLS, killed + ROW)
        while not done:
            pid = launcher.start(root, workers=workers, land=chance.choice([None, None, 0.05]))
            if chance.random() < 0.7:  # count from the start of the first training
                wait_until(lambda pid=pid, root=root: process_started(pid) is None or live_starts(root), "training")
            time.sleep(chance.uniform(0.02, 0.3))
            done = process_started(pid) is None
            if not done:
                processes = [pid, *(start["pid"] for start in live_starts(root))]
                (os.killpg if chance.random() < 0.5 else os.kill)(pid, signal.SIGKILL)
                killed += 1
                for process in processes:
                    wait_until_gone(process)
            done = done or killed >= most
        wait_until_gone(launcher.start(root, workers=workers))
        assert_equal_to(undisturbed, root)
        resumed += sum(count > 1 for count in attempts(root))
        campaigns += 1
    assert resumed > 0


@pytest.mark.parametrize(("workers", "name"), [(0, "SIGINT"), (2, "SIGTERM")], ids=["inline", "local"])
def test_a_run_that_is_asked_to_stop_saves_leaves_and_goes_on(
    tmp_path: Path, launcher: Runs, undisturbed: dict[str, list[tuple[Any, ...]]], workers: int, name: str
) -> None:
    ends = set[str]()
    for turn in range(5):  # on a busy machine, the signal may come after the last trial
        root = tmp_path / str(turn)
        pid = launcher.start(root, workers=workers)
        wait_for_starts(root, max(1, workers))
        os.killpg(pid, getattr(signal, name))  # as a terminal does: everybody in the group hears it
        wait_until_gone(pid)
        layout = Layout(root)
        states = [trial_state(layout, key) for key in layout.trial_keys()]
        assert {state.status for state in states} <= {"pending", "ok"}
        ends = {state.attempts[-1].end["status"] for state in states}
        if "stopped" in ends:
            break
    assert "stopped" in ends
    wait_until_gone(launcher.start(root, workers=workers))
    resumed = [state for key in layout.trial_keys() for state in trial_state(layout, key).attempts if state.attempt > 1]
    assert all(state.start["resumed_from"]["attempt"] == 1 for state in resumed)
    assert resumed
    assert_equal_to(undisturbed, root)


@pytest.mark.parametrize("workers", [0, 2], ids=["inline", "local"])
def test_a_second_interrupt_ends_a_run_within_a_step(tmp_path: Path, launcher: Runs, workers: int) -> None:
    root, said = tmp_path / "campaign", tmp_path / "said"
    pid = launcher.start(root, workers=workers, said=said, fates=["sticks"], fate_at=1, step_s=0.03)
    layout = Layout(root)
    live = wait_for_starts(root, max(1, workers))
    stuck = [layout.checkpoint(start["trial"], start["attempt"]) for start in live]
    wait_until(lambda: all(any(place.glob("step-*.pt")) for place in stuck), "a step that never ends")
    os.kill(pid, signal.SIGINT)
    wait_until(lambda: "Press Ctrl-C again to end at once" in said.read_text(), "the first to be heard")
    assert process_started(pid) is not None
    os.kill(pid, signal.SIGINT)
    for process in (pid, *(start["pid"] for start in live)):
        wait_until_gone(process)
    assert {trial_state(layout, key).status for key in layout.trial_keys()} == {"pending"}


def test_two_runs_train_once(tmp_path: Path, launcher: Runs, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    pids = [launcher.start(tmp_path, workers=workers) for workers in (2, 0, 1)]
    for pid in pids:
        wait_until_gone(pid)
    assert attempts(tmp_path) == [1] * 6
    layout = Layout(tmp_path)
    starts = [trial_state(layout, key).attempts[0].start for key in layout.trial_keys()]
    assert len({start["submission"] for start in starts}) > 1
    assert_equal_to(undisturbed, tmp_path)


def test_a_killed_run_is_taken(tmp_path: Path, launcher: Runs, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    first = launcher.start(tmp_path, workers=2)
    wait_for_starts(tmp_path, 2)
    second = launcher.start(tmp_path, workers=1)
    time.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    wait_until_gone(second)
    assert_equal_to(undisturbed, tmp_path)


def test_a_real_run_is_killed_and_goes_on(tmp_path: Path, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        # no `if __name__ == "__main__"`: workers must not run the user's script again
        "import sys\nfrom dataclasses import replace\nfrom pathlib import Path\nfrom runners.execution import Local\n"
        "from toy_campaign import ENTRY, run_quietly, toy_grid\n"
        "entry = replace(ENTRY, preload=('torch', *ENTRY.preload))  # else every worker loads it to save\n"
        f"run_quietly(Path(sys.argv[1]), toy_grid(**{GRID!r}), Local(2), entry=entry)\n"
    )
    root = tmp_path / "campaign"
    command = [sys.executable, str(script), str(root)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    wait_for_starts(root, 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert Warm(command, env=environment).wait() == 0
    assert_equal_to(undisturbed, root)
