"""Machines: inline and local train the same; a worker that dies is replaced, and its trial goes on."""

import os
import signal
import threading
from pathlib import Path

import pytest
from toy_campaign import QUIET, run_quietly, tables, toy_grid
from toy_training import Execution, ToyTrial
from warm import warm_server

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.crash_counter import MOST_DEATHS
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.resolve import local_devices
from ablate.runners.execution import Inline, Local
from ablate.runners.execution.run import run_campaign
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import TrialState, trial_state

WARM = ("torch", "pyarrow.parquet")
"""For trials that save: the server loads torch once, and not every worker for itself."""

SPEC = """
import os
from typing import Literal
from ablate.grid import Grid
from toy_training import Execution, Falling, Toy, ToyTrial

class Halving(Toy):
    kind: Literal["halving"] = "halving"
    rate: float = 0.5

grid = Grid(name="own", base=ToyTrial(operator=Halving()), seeds=range(2))
"""


def states(root: Path) -> list[TrialState]:
    layout = Layout(root)
    return [trial_state(layout, key) for key in layout.trial_keys()]


@pytest.mark.parametrize(
    ("gpus", "device", "workers", "found"),
    [
        (1, "auto", None, ["4", "5", "7"]),  # one worker per GPU
        (1, "cuda", 5, ["4", "5", "7", "4", "5"]),  # more share them in turn
        (2, "auto", None, ["4,5"]),  # a trial's GPUs are its worker's; one is left over
        (4, "auto", 2, [None, None]),  # more than there are: the trial says so
        (1, "cpu", 2, [None, None]),
    ],
)
def test_workers_of_this_machine_share_its_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: int, device: str, workers: int | None, found: list[str | None]
) -> None:
    monkeypatch.setattr("ablate.runners.cli.resolve.visible_gpus", lambda: ("4", "5", "7"))
    grid = Grid(name="g", base=ToyTrial(execution=Execution(gpus=gpus, device=device)), seeds=[0])
    assert local_devices(workers, [grid]) == found
    monkeypatch.setattr("ablate.runners.cli.resolve.visible_gpus", lambda: ())
    assert local_devices(None, [grid]) == [None] * len(os.sched_getaffinity(0))


def test_local_workers_are_warm_processes_of_one_thread(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The output of a trial is in its log; no process is left."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    result = run_quietly(tmp_path, toy_grid(seeds=range(4), trained_by="toy_training:describe"), Local(2))
    assert result.done == 8
    assert children.read_text() == before
    found: dict[str, set[float]] = {}
    for _, _, name, value in tables(tmp_path)["metric"]:
        found.setdefault(name, set()).add(value)
    assert found["threads"] == {1.0}
    assert found["here_first"] == {0.0}
    assert 1 <= len(found["pid"]) <= 2
    assert os.getpid() not in found["pid"] | found["parent"]
    assert len(found["parent"]) == 1
    layout = Layout(tmp_path)
    logs = sorted(layout.log(key, 1).read_text() for key in layout.trial_keys())
    assert logs == [f"hello from seed {seed}\n" for seed in range(4) for _ in range(2)]
    assert "hello" not in capfd.readouterr().out


def test_a_killed_worker_is_replaced_and_its_trial_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    deaths.write_text("x")
    grid = toy_grid(seeds=[0], fates=["dies"], fate_at=10, checkpoint_s=0.0, deaths=str(deaths))
    assert run_quietly(tmp_path / "killed", grid, Local(1, start=warm_server), preload=WARM).done == 2
    assert run_quietly(tmp_path / "calm", grid, Inline()).done == 2
    assert tables(tmp_path / "killed") == tables(tmp_path / "calm")
    _, resumed = sorted(states(tmp_path / "killed"), key=lambda state: len(state.attempts))
    assert resumed.attempts[1].start["resumed_from"] == {"attempt": 1, "step": 10}
    assert resumed.attempts[1].start["worker"] != resumed.attempts[0].start["worker"]


def test_a_trial_that_kills_its_workers_fails_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run_quietly(tmp_path, toy_grid(seeds=[0], fates=["dies", "ok"]), Local(2, start=warm_server))
    assert (result.done, result.failed) == (2, 2)
    failed = [state for state in states(tmp_path) if state.state == "failed"]
    for state in failed:
        assert len(state.attempts) == MOST_DEATHS
        assert state.attempts[-1].end["reason"] == "killed"
        assert "SIGKILL" in state.attempts[-1].end["message"]
    assert len(failed) == 2
    assert "its trial goes on from its last checkpoint" in capfd.readouterr().err


def test_deaths_with_progress_in_between_are_forgiven(tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    deaths.write_text("x" * (MOST_DEATHS + 1))
    grid = toy_grid(seeds=[0], fates=["dies"], steps=60, fate_at=5, checkpoint_s=0.0, deaths=str(deaths))
    assert run_quietly(tmp_path / "campaign", grid, Local(1, start=warm_server), preload=WARM).done == 2
    assert max(len(state.attempts) for state in states(tmp_path / "campaign")) > MOST_DEATHS


def test_a_worker_that_is_asked_to_leave_hands_its_trial_to_another(tmp_path: Path) -> None:
    root, go = tmp_path / "campaign", tmp_path / "go"
    grid = toy_grid(seeds=[0], steps=30, fate_at=100, held=str(go))
    asked: list[int] = []

    def ask() -> None:
        while not asked:
            asked.extend(state.live.start["pid"] for state in states(root) if state.live is not None)
        os.kill(asked[0], signal.SIGTERM)
        go.touch()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    result = run_quietly(root, grid, Local(1, start=warm_server), preload=WARM)
    thread.join()
    assert (result.done, result.stopped) == (2, 0)
    stopped = [state for state in states(root) if len(state.attempts) == 2]
    assert [state.attempts[0].end["status"] for state in stopped] == ["stopped"]
    assert stopped[0].attempts[1].start["pid"] != asked[0]


def test_choices_of_a_users_spec_file_reach_the_workers(tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_text(SPEC)
    grids = load_spec_file(path)
    options = RunRequest(**{**vars(QUIET), "files": (path,)})
    assert run_campaign(tmp_path / "campaign", grids.values(), Local(2, start=warm_server), options).done == 2
    missing = run_campaign(tmp_path / "without", grids.values(), Local(2, start=warm_server), QUIET)
    assert missing.failed == 2
    assert "no kind 'halving'" in states(tmp_path / "without")[0].attempts[-1].end["message"]


@pytest.mark.parametrize(
    ("ending", "raised", "said"),
    [
        ("raise ValueError('not in a worker')", SpecError, "spec.py:1: ValueError: not in a worker"),
        ("import os; os._exit(7)", EnvironmentProblem, r"workers die as they start \(exit status 7\)"),
    ],
)
def test_workers_that_cannot_start_end_the_run(tmp_path: Path, ending: str, raised: type[Exception], said: str) -> None:
    path = tmp_path / "spec.py"
    path.write_text(ending + "\n")
    options = RunRequest(**{**vars(QUIET), "files": (path,)})
    with pytest.raises(raised, match=said):
        run_campaign(tmp_path / "campaign", [toy_grid()], Local(2, start=warm_server), options)
    with pytest.raises(EnvironmentProblem, match="No module named 'nothing_of_the_kind'"):
        run_quietly(tmp_path, toy_grid(), Local(2, start=warm_server), preload=("nothing_of_the_kind",))
    with pytest.raises(SpecError, match="0 workers"):
        Local(0)
