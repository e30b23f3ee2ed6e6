"""One trial on several processes, real ones: the numbers of one process, and an end whatever happens to a rank."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from batch_in_parts import GENTLE, OPERATORS, ROUNDINGS, apart, dropping, numbers, split
from rank_failures import FailsOnRankOne, TooBigForRankOne
from rank_process import children
from warm import REAL, Warm, warmed_up

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.manifest import submission_id, trial_lines, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import Worker
from ablate.runners.processes import rank_launcher as ranks
from ablate.runners.processes.failure import failure_of
from ablate.runners.processes.rank_launcher import RankFailed, RankOutOfMemory
from ablate.runners.processes.training_context import Diverged, NodeLost
from ablate.runners.provenance.specfile import import_spec_file
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.training.loop.train import train
from ablate.training.trial import Execution, Trial
from ablate.variants import Operator

TESTS = Path(__file__).parent.parent
SHORT = GENTLE.changed(steps=6, evaluate_every=4)


@pytest.fixture(autouse=True)
def _ranks_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As forks of a process that has imported what they need, where a test does not say otherwise."""
    begun = SimpleNamespace(**{**vars(subprocess), "Popen": partial(Warm, preload=REAL)})
    monkeypatch.setattr(ranks, "subprocess", begun)


@pytest.fixture(autouse=True)
def _no_rank_is_left() -> None:
    warmed_up()
    before = children()
    yield
    assert set(children()) <= set(before)
    assert not dist.is_initialized()


def test_ranks_train_as_one_process_does(tiny: Trial, memory: Callable) -> None:
    """Two ranks sum as two micro-batches do, bit for bit; uneven parts of several ranks differ by rounding."""
    trial, whole, row, two, uneven = (tiny.changed(operator=OPERATORS[2], training=SHORT), *(memory() for _ in "1234"))
    train(trial, whole)
    train(split(trial, 2), row)
    train(split(trial, 1, gpus=2), two)
    train(split(trial, 2, gpus=3), uneven)
    assert numbers(two) == numbers(row)
    for world in (two, uneven):
        assert apart(numbers(whole), numbers(world)) < ROUNDINGS * torch.finfo(torch.float32).eps


def test_a_run_goes_on_with_another_number_of_ranks(tiny: Trial, memory: Callable) -> None:
    """Bit for bit, also with dropout: two ranks, one rank, two ranks; and two ranks throughout."""
    trial = dropping(tiny, OPERATORS[2])
    whole, parts, two = memory(), memory(stop_at=[4, 7]), split(trial, 1, gpus=2)
    train(two, whole)
    for stop, each in ((4, two), (7, split(trial, 2))):
        finished = train(each, parts)
        assert (finished.step, finished.stopped) == (stop, True)
        parts.stop_at.remove(stop)
    assert train(two, parts).step == 12
    assert numbers(parts) == numbers(whole)
    assert [step for step, _ in parts.checkpoints] == [4, 7]


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join((str(TESTS.parent / "src"), str(TESTS))),
    "OMP_NUM_THREADS": "1",
}


def script(trial: Trial, folder: Path, job: Mapping[str, object]) -> list[str]:
    return [str(TESTS / "rank_process.py"), json.dumps({"trial": trial.data(), "out": str(folder), **job})]


def alone(trial: Trial, folder: Path, environment: Mapping[str, str] = MappingProxyType({}), **job: object) -> Warm:
    """A process that trains; `environment` makes it one rank of many."""
    return Warm([sys.executable, *script(trial, folder, job)], preload=REAL, env={**ENVIRONMENT, **environment})


def read_ranks(folder: Path, ranks: int) -> list[dict]:
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]


def test_ranks_of_torchrun_meet_and_in_float64_they_agree_to_its_roundings(tiny: Trial, tmp_path: Path) -> None:
    trial = tiny.changed(operator=OPERATORS[2], training=SHORT)
    options = ["--nnodes=1", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "--local-addr=127.0.0.1"]
    words = script(split(trial, 1, gpus=2), tmp_path, {"double": True})
    preload = (*REAL, "torch.distributed.launcher.api")
    assert Warm([*command, *words], preload=preload, env=ENVIRONMENT).wait() == 0
    zero, one = read_ranks(tmp_path, 2)
    assert alone(trial, tmp_path, double=True).wait() == 0
    (whole,) = read_ranks(tmp_path, 1)
    assert apart(whole["numbers"], zero["numbers"]) < ROUNDINGS * torch.finfo(torch.float64).eps
    assert (one["step"], one["numbers"]) == (6, {})


def test_a_stop_that_one_rank_is_asked_for_stops_all_at_the_same_step(tiny: Trial, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **meeting}
    places = [{**world, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    processes = [alone(split(tiny, 1, gpus=2), tmp_path, place, stop_at={"1": [7]}) for place in places]
    assert [process.wait() for process in processes] == [0, 0]
    assert [(rank["step"], rank["stopped"]) for rank in read_ranks(tmp_path, 2)] == [(7, True), (7, True)]


def test_a_killed_rank_ends_the_trial(tiny: Trial, memory: Callable) -> None:
    world, before = memory(), children()

    def kill(step: int, steps: int, loss: float) -> None:
        if step == 5:
            first, *others = (pid for pid in children() if pid not in before)
            for pid in others:  # hangs, and cannot end by itself
                os.kill(pid, signal.SIGSTOP)
            os.kill(first, signal.SIGKILL)

    world.progress = kill
    with pytest.raises(RankFailed, match=r"rank 1 of 3 failed: its process ended \(SIGKILL\)") as caught:
        train(split(tiny, 1, gpus=3), world)
    assert failure_of(caught.value).reason == "killed"
    assert 5 in world.logged


def test_ranks_die_with_the_process_that_started_them(tiny: Trial, tmp_path: Path) -> None:
    """They are interpreters of their own here."""
    with alone(split(tiny, 1, gpus=2), tmp_path, pause_at=5) as process:
        try:
            while not (tmp_path / "children.json").exists():
                assert process.poll() is None
                time.sleep(0.05)
        finally:
            process.kill()
    (rank,) = json.loads((tmp_path / "children.json").read_text())["pids"]
    while runs(rank):
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_rank_says_why_it_failed_and_is_not_waited_for(tiny: Trial, memory: Callable) -> None:
    """The process of the second ends only when all others have, and one of them never does."""
    sizes = {"points": 5, "batch": 9, "evaluation": tiny.task.evaluation}
    with subprocess.Popen(["sleep", "600"]) as lasting:
        try:
            for task in (FailsOnRankOne(**sizes), TooBigForRankOne(**sizes, end="last")):
                with pytest.raises(RankFailed, match="rank 1 of 3 failed: out of memory") as caught:
                    train(split(tiny.changed(task=task), 1, gpus=3), memory())
                assert failure_of(caught.value).reason == "out_of_memory"
        finally:
            lasting.kill()


@pytest.mark.parametrize("end", ["device", "killed"])
def test_a_rank_without_memory_cuts(tiny: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    kills = tmp_path / "kills"
    kills.touch()
    monkeypatch.setattr("ablate.runners.processes.rank_launcher.oom_kills", lambda: len(kills.read_text()))
    task = TooBigForRankOne(points=5, batch=8, evaluation=tiny.task.evaluation, end=end, kills=str(kills))
    base = split(tiny.changed(task=task, training={"steps": 2}), 1, gpus=2)
    layout, submission = Layout(tmp_path / "campaign"), submission_id()
    write_submission(layout, submission, trial_lines(Grid(name="g", base=base, seeds=[3])))
    idle = SimpleNamespace(
        stop_requested=lambda: False,
        row_started=lambda *_: None,
        row_stepped=lambda *_: None,
        row_works=lambda *_: None,
    )
    worker = Worker(RunRequest(layout.root, submission, oom="halve"), 0, idle, own_process=False)
    assert worker.run(0).state == "done"
    (key,) = layout.trial_keys()
    attempts = trial_state(layout, key).attempts
    ends = [(each.start["accumulate"], each.end["status"], each.end["reason"]) for each in attempts]
    assert ends == [(1, "failed", "out_of_memory"), (2, "ok", None)]
    assert len(kills.read_text()) == (end == "killed")


def test_a_shared_want_of_memory_loses_no_rank(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(dist, "all_reduce", no_room)
    with pytest.raises(RankFailed) as caught:
        train(split(tiny, 1, gpus=2), memory())
    assert isinstance(caught.value, RankOutOfMemory)
    assert failure_of(caught.value).reason == "out_of_memory"


def test_divergence_is_divergence_on_every_rank(tiny: Trial, memory: Callable) -> None:
    optimiser = tiny.training.optimiser.changed(lr=1e4)
    trial = tiny.changed(training=tiny.training.changed(optimiser=optimiser))
    row, two = memory(), memory()
    for each, world in ((split(trial, 2), row), (split(trial, 1, gpus=2), two)):
        with pytest.raises(Diverged):
            train(each, world)
    assert repr(numbers(two)) == repr(numbers(row))  # as text, where NaN is NaN


OWN = """
from typing import Literal
from ablate.variants import Operator
from ablate.variants.stages.scores import Exponential

class Doubled(Exponential):
    kind: Literal["doubled"] = "doubled"

    def log_score(self, a):
        return 2 * a
"""


def test_ranks_run_the_spec_file_as_it_was_loaded(tiny: Trial, memory: Callable, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    own = import_spec_file(file)
    file.write_text("raise RuntimeError")
    trial, row, two = tiny.changed(operator=Operator(score=own.Doubled())), memory(), memory()
    train(split(trial, 2), row)
    train(split(trial, 1, gpus=2), two)
    assert numbers(two) == numbers(row)


def test_a_class_of_the_program_is_refused(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(tiny.task), "__module__", "__main__")
    with pytest.raises(SpecError, match="is defined in the program"):
        train(split(tiny, 1, gpus=2), memory())


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_too_few_devices_refused(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(EnvironmentProblem, match=r"1 CUDA devices, and execution.gpus=2"):
        train(tiny.changed(execution=Execution(gpus=2, device=device)), memory())


def test_a_launcher_of_other_ranks_is_refused(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EnvironmentProblem, match=r"execution.gpus is 2 and WORLD_SIZE is 4"):
        train(split(tiny, 1, gpus=2), memory())
    train(tiny, memory())


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A command that stands for srun: it starts the rank here and writes its process and node to a file."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f"""#!/bin/bash
while [[ $1 == --* ]]; do
  case $1 in --relative=*) node=${{1#--relative=}} ;; esac
  shift
done
echo "$$ $node $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE" >> {tmp_path}/ranks
exec "$@"
""")
    srun.chmod(0o755)
    fork = ranks.subprocess.Popen

    def begin(command: list[str], **options: object) -> subprocess.Popen:
        return (subprocess.Popen if ranks._SRUN in command else fork)(command, **options)

    monkeypatch.setattr(ranks.subprocess, "Popen", begin)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    given = {"NODES": "2", "PYTHON": f"env INSIDE=1 {sys.executable}"}
    for name, value in {**{f"ABLATE_{key}": each for key, each in given.items()}, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return tmp_path / "ranks"


def test_ranks_of_two_nodes_train_as_those_of_one(tiny: Trial, memory: Callable, two_nodes: Path) -> None:
    trial, row, two = tiny.changed(training=SHORT), memory(), memory()
    train(split(trial, 1, gpus=2), two)
    assert [line.split(maxsplit=1)[1] for line in two_nodes.read_text().splitlines()] == ["1 1 0 1"]
    train(split(trial, 2), row)
    assert numbers(two) == numbers(row)


def test_a_trial_whose_other_node_is_lost_has_not_failed(tiny: Trial, memory: Callable, two_nodes: Path) -> None:
    world = memory()

    def lose(step: int, *_: object) -> None:
        if step == 3:
            os.kill(int(two_nodes.read_text().split()[0]), signal.SIGKILL)

    world.progress = lose
    with pytest.raises(NodeLost, match="rank 1 of 2 failed on another node"):
        train(split(tiny, 1, gpus=2), world)
