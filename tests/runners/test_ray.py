"""A Ray of its own on this machine: stopped, gone on with, with trials that fail and that kill their process."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from toy_campaign import keys, run_quietly, tables, toy_grid
from warm import warm_server

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.submission_record import Submission, submission_records
from ablate.runners.cli.app import execute
from ablate.runners.execution import Local
from ablate.runners.execution.ray_machine import Ray
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

TESTS = Path(__file__).parent.parent


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """Ray's sockets have short paths, and nothing is sent or kept."""
    pytest.importorskip("ray", reason='needs "ablate[ray]"')
    paths = (str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", ""))
    with TemporaryDirectory(prefix="ray-") as place:
        ours = {"RAY_TMPDIR": place, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        yield {**os.environ, **ours, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _start(root: Path, environ: dict[str, str], workers: int, **grid: Any) -> "subprocess.Popen[bytes]":
    request = {"root": str(root), "grid": grid, "workers": workers, "ray": True, "land": None}
    command = [sys.executable, "-P", str(TESTS / "toy_run.py"), json.dumps(request)]
    return subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_what_ray_trains_is_what_processes_here_train(tmp_path: Path, environ: dict[str, str]) -> None:
    """The first run is asked to stop in its trials. In the second, a trial kills its process once and goes on."""
    root, deaths = tmp_path / "c", tmp_path / "deaths"
    deaths.write_text("x")
    grid: dict[str, Any] = {"fates": ["ok", "raises", "dies"], "seeds": [0], "steps": 20, "deaths": str(deaths)}

    def start(**more: Any) -> "subprocess.Popen[bytes]":
        return _start(root, environ, 2, **grid, **more)

    with start(held=str(tmp_path / "never")) as run:  # they wait in their first step
        while not any(path.stat().st_size for path in Layout(root).trials.glob("*/*/*/heartbeat")):
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
    assert run.returncode == 130
    layout = Layout(root)
    assert {trial_state(layout, key).state for key in layout.trial_keys()} == {"stopped"}
    with start() as run:
        pass
    assert run.returncode == 4
    assert deaths.read_text() == ""
    assert [each.machine for each in submission_records(layout) if isinstance(each, Submission)] == ["ray", "ray"]
    deaths.write_text("x")
    run_quietly(tmp_path / "local", toy_grid(**grid), Local(2, start=warm_server))
    theirs, ours = tables(tmp_path / "local"), tables(root)
    theirs.pop("trial"), ours.pop("trial")  # specs say where they ran
    assert ours == theirs


@pytest.mark.slow
def test_it_ends_with_more_workers_than_slots_and_at_a_signal_while_ray_starts(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    root = tmp_path / "c"
    environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": 1})
    with _start(root, environ, 3, seeds=[0]) as run:
        while not [*Path(environ["RAY_TMPDIR"]).glob("ray/session_*")]:
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
    assert run.returncode == 130
    with _start(root, environ, 3, seeds=[0]) as run:
        pass
    assert run.returncode == 0


@pytest.mark.slow
def test_an_error_of_a_worker_is_raised_as_it_is(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environ.keys() - os.environ.keys():
        monkeypatch.setenv(name, environ[name])
    spec = tmp_path / "spec.py"
    spec.write_text("raise ValueError('not in a worker')\n")
    with pytest.raises(SpecError) as raised:
        run_quietly(tmp_path / "c", toy_grid(seeds=[0]), Ray(1), files=(spec,))
    assert type(raised.value) is SpecError


def test_a_cluster_that_does_not_answer_is_a_problem_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason='needs "ablate[ray]"')
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(EnvironmentProblem, match=address):
            run_quietly(tmp_path / "c", toy_grid(seeds=[0]), Ray(1))


@pytest.mark.parametrize(("grid", "options"), [({"stall": 60.0}, {}), ({}, {"oom": "halve"})])
def test_what_has_no_effect_there_is_refused(tmp_path: Path, grid: dict[str, Any], options: dict[str, Any]) -> None:
    pytest.importorskip("ray", reason='needs "ablate[ray]"')
    with pytest.raises(SpecError):
        run_quietly(tmp_path / "c", toy_grid(seeds=[0], **grid), Ray(1), **options)
    assert not keys(tmp_path / "c")


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "toys.py").write_text("from toy_campaign import toy_grid\ngrid = toy_grid()\n")
    assert execute(["run", str(tmp_path / "toys.py"), "--on", "ray", "--campaign", str(tmp_path / "c")]) == 5
    assert 'pip install "ablate[ray]"' in capsys.readouterr().err
