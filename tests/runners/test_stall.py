"""A trial that stands still is ended as failed; the others of its run go on."""

import json
import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from real_spec import real_spec
from toy_campaign import QUIET, toy_grid
from warm import warm_server

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Local, stall
from ablate.runners.execution.fork_client import Forked
from ablate.runners.execution.pool import WorkerPool, _PoolMember
from ablate.runners.execution.run import run_campaign
from ablate.runners.execution.stall import Stall
from ablate.store.files.attempts import Heartbeat
from ablate.store.files.layout import Layout
from ablate.store.files.records import Progress
from ablate.store.files.trial_state import trial_state
from ablate.training.trial import Execution

BLOCKING = '''
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor

from ablate.variants import Operator
from ablate.variants.stages.families import LogScore


class Blocking(LogScore):
    """The exponential, once somebody writes into a pipe."""

    source: ClassVar[str] = "none"
    kind: Literal["blocking"] = "blocking"

    def log_score(self, a: Tensor) -> Tensor:
        (Path(__file__).parent / "pipe").read_text()
        return a

    def oracle(self, a: float) -> float:
        import math

        return math.exp(a)
'''


def test_trials_that_stand_still_fail_and_the_others_of_the_run_finish(tmp_path: Path) -> None:
    """Also in C code that holds the interpreter, where no thread of the worker can act."""
    still = toy_grid("still", seeds=[0], fates=["sticks", "holds", "evaluates"], stall=2.0)
    others = toy_grid("others", seeds=range(1, 4))
    options = RunRequest(**vars(QUIET))
    result = run_campaign(tmp_path, [still, others], Local(2, start=warm_server), options)
    assert (result.done, result.failed, result.stopped) == (6, 6, 0)
    layout, fingerprints = Layout(tmp_path), set()
    for planned in still.trials():
        (attempt,) = trial_state(layout, planned.key).attempts
        assert attempt.end is not None
        assert (attempt.end["status"], attempt.end["reason"]) == ("failed", "stalled")
        fingerprints.add(attempt.end["fingerprint"])
        log = layout.log(planned.key, 1).read_text()
        assert "toy_training.py" in log  # where it stood
    assert len(fingerprints) == 1


def test_a_run_with_a_trial_that_waits_for_ever_ends_with_exit_code_4(
    tmp_path: Path, ablate: Callable[..., Any]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "spec.py"
    operators = 'softmax(), Operator(name="waits", score=Blocking())'
    path.write_text(
        real_spec("waits", training="steps=3", execution='stall="5s"', operators=operators, seeds=1, before=BLOCKING)
    )
    ablate("run", path, "--campaign", tmp_path / "campaign", "--workers", 1, code=4)
    layout = Layout(tmp_path / "campaign")
    ends = [trial_state(layout, key).attempts[-1].end or {} for key in layout.trial_keys()]
    assert sorted((end["status"], end["reason"]) for end in ends) == [("failed", "stalled"), ("ok", None)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a stall sees, and the signals it sends behind it."""
    now = [0.0]
    monkeypatch.setattr(stall.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stall.os, "kill", lambda _pid, how: now.append(how))
    return now


def look_for(watched: Stall, clock: list[float], seconds: float, every: float = 0.2) -> list[float]:
    until = clock[0] + seconds
    while clock[0] < until:
        clock[0] += every
        watched.check(1)
    return clock[1:]


def test_a_worker_shows_its_stack_before_it_is_ended(clock: list[float]) -> None:
    watched = Stall(10.0)
    assert look_for(watched, clock, 9.0) == []
    watched.hear(0.0)
    assert look_for(watched, clock, 9.0) == []
    assert look_for(watched, clock, 1.0) == [signal.SIGUSR1]
    assert look_for(watched, clock, 0.5)[:2] == [signal.SIGUSR1, signal.SIGKILL]
    assert watched.ended


def test_a_compilation_may_take_longer_and_a_suspended_machine_stalls_nothing(clock: list[float]) -> None:
    watched = Stall(10.0)
    watched.hear(3600.0)
    assert look_for(watched, clock, 3000.0) == []
    watched.hear(0.0)
    assert look_for(watched, clock, 5000.0, every=1000.0) == []
    assert signal.SIGKILL in look_for(watched, clock, 20.0)


def test_only_progress_shortens_the_time_that_a_compilation_has(clock: list[float]) -> None:
    pool: Any = SimpleNamespace(_attempt=lambda _: None)
    ours, theirs = Pipe()
    member = _PoolMember(Forked(0, 1, theirs), 0)
    member.stall = Stall(10.0)
    for message in (("works", 3600.0), ("note", "the compiler warns")):
        ours.send(message)
        WorkerPool._hear(pool, member)
    assert look_for(member.stall, clock, 3000.0) == []


def test_a_heartbeat_tells_of_idle_time_and_of_the_usual_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, key = Layout(tmp_path), "ab" * 16
    path = layout.heartbeat(key, 1)
    path.parent.mkdir(parents=True)
    path.touch()
    now = [0.0]
    monkeypatch.setattr("ablate.store.files.attempts.time", SimpleNamespace(monotonic=lambda: now[0]))
    heart = Heartbeat(path)
    for step in range(1, 8):
        now[0] += 0.25 if step != 4 else 30.0  # an evaluation lay between
        heart.tell(step, 9, 1.5)
    now[0] += 130.0
    heart.beat()
    found = Progress.of(layout, key, 1)
    assert found == Progress(step=7, steps=9, loss=1.5, idle_s=130.0, step_s=0.25)
    heart.works()
    heart.beat()
    assert Progress.of(layout, key, 1) == found.model_copy(update={"idle_s": 0.0})


def test_a_duration_is_a_text_or_seconds() -> None:
    assert [Execution(stall=text).stall for text in ("90s", "30m", "1h30m", "2d", 12)] == [90, 1800, 5400, 172800, 12]
    read = Execution.model_validate_json(json.dumps(Execution(stall="30m").data()))
    assert read.stall == 1800.0
    for wrong in ("soon", "", "5", "0s", -1):
        with pytest.raises(ValidationError):
            Execution(stall=wrong)
