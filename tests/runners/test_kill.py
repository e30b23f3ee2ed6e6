"""However a run is killed, running it again gives the tables of a run that was never disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from real_spec import real_spec
from toy_campaign import run_quietly, tables, toy_grid
from waiting import wait_until
from warm import REAL, Warm

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Inline
from ablate.runners.execution.run import run_campaign
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import process_started, trial_state

TESTS = Path(__file__).resolve().parent.parent
KILLS = 4
"""Per machine; each hits a live run."""
KILLS_OF_A_COMMAND = 5
"""The last of them hits the whole run, those before hit a worker each."""
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
    assert run_quietly(root, toy_grid(**{**GRID, "step_s": 0.0})).done == 6
    return results(root)


def results(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that the store says, but how the trials were executed."""
    found = tables(root)
    found["trial"] = [(key, *rest) for key, _, *rest in found["trial"]]
    return found


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: process_started(pid) is None)


def live_starts(root: Path) -> list[dict[str, Any]]:
    """Start records of live attempts."""
    states = (trial_state(Layout(root), key) for key in Layout(root).trial_keys())
    return [state.live.start for state in states if state.live is not None]


def wait_for_starts(root: Path, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(live_starts(root)) >= count)
    return live_starts(root)


def attempts(root: Path) -> list[int]:
    return [len(Layout(root).attempts(key)) for key in Layout(root).trial_keys()]


def assert_equal_to(undisturbed: dict[str, list[tuple[Any, ...]]], root: Path) -> None:
    found = results(root)
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
                wait_until(lambda pid=pid, root=root: process_started(pid) is None or live_starts(root))
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
    root, go = tmp_path / "campaign", tmp_path / "go"
    pid = launcher.start(root, workers=workers, held=str(go))
    wait_for_starts(root, max(1, workers))
    os.killpg(pid, getattr(signal, name))  # as a terminal does: everybody in the group hears it
    wait_until_gone(pid)
    layout = Layout(root)
    states = [trial_state(layout, key) for key in layout.trial_keys()]
    assert {state.state for state in states} == {"stopped"}
    assert {state.attempts[-1].end["status"] for state in states} == {"stopped"}
    go.touch()
    wait_until_gone(launcher.start(root, workers=workers, held=str(go)))
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
    wait_until(lambda: all(any(place.glob("step-*.pt")) for place in stuck))
    os.kill(pid, signal.SIGINT)
    wait_until(lambda: "Press Ctrl-C again to end at once" in said.read_text())
    assert process_started(pid) is not None
    os.kill(pid, signal.SIGINT)
    for process in (pid, *(start["pid"] for start in live)):
        wait_until_gone(process)
    assert not {trial_state(layout, key).state for key in layout.trial_keys()} & {"running", "done", "failed"}


def test_two_runs_train_once(tmp_path: Path, launcher: Runs, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    root, go = tmp_path / "campaign", tmp_path / "go"
    pids = [launcher.start(root, workers=workers, held=str(go)) for workers in (2, 0, 1)]
    wait_until(lambda: len({start["submission"] for start in live_starts(root)}) > 1)
    go.touch()
    for pid in pids:
        wait_until_gone(pid)
    assert attempts(root) == [1] * 6
    assert_equal_to(undisturbed, root)


def test_a_killed_run_is_taken(tmp_path: Path, launcher: Runs, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    root, go = tmp_path / "campaign", tmp_path / "go"
    first = launcher.start(root, workers=2, held=str(go))
    wait_for_starts(root, 2)
    second = launcher.start(root, workers=1, held=str(go))
    wait_for_starts(root, 3)
    os.kill(first, signal.SIGKILL)
    go.touch()
    wait_until_gone(second)
    assert_equal_to(undisturbed, root)


def test_a_real_run_is_killed_and_goes_on(tmp_path: Path, undisturbed: dict[str, list[tuple[Any, ...]]]) -> None:
    script, go = tmp_path / "user.py", tmp_path / "go"
    script.write_text(
        # no `if __name__ == "__main__"`: workers must not run the user's script again
        "import sys\nfrom pathlib import Path\n"
        "from ablate.runners.execution import Local\nfrom toy_campaign import run_quietly, toy_grid\n"
        "preload = 'torch', 'pyarrow.parquet'  # else every worker loads torch to save\n"
        f"run_quietly(Path(sys.argv[1]), toy_grid(**{ {**GRID, 'held': str(go)}!r}), Local(2), preload=preload)\n"
    )
    root = tmp_path / "campaign"
    command = [sys.executable, str(script), str(root)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    wait_for_starts(root, 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    go.touch()
    assert Warm(command, env=environment).wait() == 0
    assert_equal_to(undisturbed, root)


def spec(path: Path, checkpoint_s: float) -> Path:
    training, execution = "steps=100, evaluate_every=50", f"checkpoint_s={checkpoint_s}"
    path.write_text(real_spec("killed", training=training, execution=execution, seeds=2))
    return path


def resumed(root: Path) -> int:
    """Attempts that went on from another's checkpoint."""
    layout = Layout(root)
    attempts = [found for key in layout.trial_keys() for found in trial_state(layout, key).attempts]
    return sum(found.start["resumed_from"] is not None for found in attempts)


class Run:
    """`python -m ablate run`, in a process group of its own; `fresh`: in a new interpreter."""

    def __init__(self, path: Path, root: Path, *, fresh: bool) -> None:
        self._layout = Layout(root)
        command = [sys.executable, "-P", "-m", "ablate", "run", str(path), "--workers", "2", "--campaign", str(root)]
        self.said = root.with_suffix(".log")
        with self.said.open("ab") as said:
            begin = subprocess.Popen if fresh else partial(Warm, preload=REAL)
            self.process = begin(command, stderr=said, stdout=said, start_new_session=True)

    def over(self) -> bool:
        return self.process.poll() is not None

    def worker(self) -> int | None:
        """A worker that has saved a step of its own; None if the run is over first.

        Deaths without a step gained in between fail a trial, as they should, so none is caused here.
        """
        while not self.over():
            for key in self._layout.trial_keys():
                live = trial_state(self._layout, key).live
                if live is not None and any(self._layout.checkpoint(key, live.attempt).glob("step-*.pt")):
                    return int(live.start["pid"])
            time.sleep(0.01)
        return None

    def kill(self, chance: random.Random) -> int:
        """Kill workers at random moments, at last the run: the group or the parent alone; how many kills hit."""
        hits = 0
        for _ in range(KILLS_OF_A_COMMAND - 1):
            worker = self.worker()
            if worker is None:
                return hits
            hits += self._kill(os.kill, worker, chance.uniform(0, 0.15))
        if self.worker() is not None:
            kill_run = os.killpg if chance.random() < 0.5 else os.kill
            hits += self._kill(kill_run, self.process.pid, chance.uniform(0, 0.3))
        return hits

    def _kill(self, kill: Any, pid: int, after_s: float) -> bool:
        time.sleep(after_s)
        if process_started(pid) is None:
            return False
        kill(pid, signal.SIGKILL)
        wait_until_gone(pid)  # so that nobody is killed twice
        return True


@pytest.mark.slow
def test_the_command_killed_five_times_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    path = spec(tmp_path / "calm.py", checkpoint_s=600)
    options = RunRequest(land_every_s=None, progress=False, files=(path,))
    assert run_campaign(tmp_path / "calm", load_spec_file(path).values(), Inline(), options).done == 4
    expected = results(tmp_path / "calm")
    assert [counts for _, _, *counts in expected["progress"]] == [[2, 2, 0]] * 2
    assert len({row[4] for row in expected["final"]}) == 4

    path = spec(tmp_path / "killed.py", checkpoint_s=0)  # a step is saved as soon as it is done
    chance = random.Random("kill the command")
    killed = campaigns = begun = 0
    while killed < KILLS_OF_A_COMMAND:
        root = tmp_path / f"killed{campaigns}"
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            run = Run(path, root, fresh=begun == 0)
            begun += 1
            killed += run.kill(chance) if killed < KILLS_OF_A_COMMAND else 0
            code = run.process.wait()
        assert code == 0, run.said.read_text()
        assert results(root) == expected
        assert resumed(root) > 0
        campaigns += 1
