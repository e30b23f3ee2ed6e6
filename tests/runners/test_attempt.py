"""An attempt has one owner, and what it said is durable before its end is."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablate.runners.attempts.attempt import Attempt, CampaignUnwritable, LeaseLost, Watch, gpu_software
from ablate.runners.attempts.claims import Claim, Taken, claim
from ablate.runners.checkpoint import KEEP
from ablate.runners.processes.failure import Failure, killed_failure
from ablate.runners.processes.training_context import TrainingResult
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer, verify_shard
from ablate.store.files.trial_state import pid_space, process_started, trial_state
from ablate.store.state import State

TRIAL = "ab" * 16
SUBMISSION = "20260101T000000-abcdef"
ABOUT = {"submission": SUBMISSION, "worker": 3, "path": None, "device": None, "threads": 1, "code": None}
DONE = TrainingResult(9, stopped=False, parameters=7, operator_parameters=2, train_s=0.5, evaluate_s=0.1)


OLD, NEW = {"core": "01"}, {"core": "02"}


def claimed(layout: Layout, *, retry: bool = False, again: bool = False, sources: Any = None) -> Claim:
    mine = claim(layout, TRIAL, {**ABOUT, "sources": sources}, retry=retry, again=again)
    assert isinstance(mine, Claim)
    return mine


def attempt_of(layout: Layout, mine: Claim, checkpoint_s: float = 20.0) -> Attempt:
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=3)
    return Attempt(layout, mine, buffer, checkpoint_s, Watch(lambda: False, lambda *_: None))


def begin(layout: Layout, checkpoint_s: float = 20.0, **how: Any) -> Attempt:
    return attempt_of(layout, claimed(layout, **how), checkpoint_s)


def test_a_failed_trial_is_claimed_again_only_when_asked(layout: Layout) -> None:
    begin(layout).fail(Failure("error", "m", None, "f"))
    later = {**ABOUT, "submission": "20260102T000000-abcdef"}
    assert claim(layout, TRIAL, later, retry=False) == Taken(State.FAILED)
    assert claim(layout, TRIAL, ABOUT, retry=True) == Taken(State.FAILED)  # by the very submission: not again and again
    assert claim(layout, TRIAL, later, retry=True).number == 2


def test_a_damaged_checkpoint_or_one_of_other_code_is_passed_over_and_the_log_says_so(layout: Layout) -> None:
    attempt = begin(layout, sources=OLD)
    attempt.save(5, {"x": 1})
    attempt.save(6, {"x": 2})
    newest = max(layout.checkpoint(TRIAL, 1).iterdir())
    newest.write_bytes(b"")
    attempt.abandon("for the test")
    second = begin(layout, sources=OLD)
    assert read_json(layout.start(TRIAL, 2))["resumed_from"] == {"attempt": 1, "step": 5}
    assert newest.name in layout.log(TRIAL, 2).read_text()
    second.abandon("for the test")
    third = claimed(layout, sources=NEW)
    assert (third.checkpoint, third.start["resumed_from"]) == (None, None)
    assert "other code made the checkpoints of attempt 1; they are not used" in layout.log(TRIAL, 3).read_text()
    attempt = attempt_of(layout, third)
    attempt.save(3, {"x": 3})
    attempt.abandon("for the test")
    assert claimed(layout, sources=NEW).start["resumed_from"] == {"attempt": 3, "step": 3}
    change_start(layout, 4, pid_started=1)  # that process is gone
    assert claimed(layout, sources=OLD).start["resumed_from"] == {"attempt": 1, "step": 5}


def change_start(layout: Layout, number: int, **fields: Any) -> None:
    start = layout.start(TRIAL, number)
    start.write_text(json.dumps({**read_json(start), **fields}))


def test_a_checkpoint_that_goes_back_to_other_code_is_other_code(layout: Layout) -> None:
    for number in (1, 2):
        attempt = begin(layout, sources=OLD)
        attempt.save(5 * number, {"x": 1})
        attempt.abandon("for the test")
    change_start(layout, 2, sources=NEW)  # as if resumed before code was compared
    assert claimed(layout, sources=NEW).checkpoint is None


def test_a_finished_trial_of_other_code_is_claimed_only_when_asked_and_begins_anew(layout: Layout) -> None:
    first = begin(layout, sources=OLD)
    first.save(9, {"x": 1})
    first.finish(DONE)
    asked = {**ABOUT, "sources": NEW}
    assert claim(layout, TRIAL, asked, retry=True) == Taken(State.DONE)
    assert claim(layout, TRIAL, {**ABOUT, "sources": OLD}, retry=True, again=True) == Taken(State.DONE)
    mine = claimed(layout, again=True, sources=NEW)
    assert (mine.number, mine.checkpoint) == (2, None)
    assert claim(layout, TRIAL, asked, retry=True, again=True) == Taken(State.RUNNING)
    second = attempt_of(layout, mine)
    second.save(4, {"x": 4})
    second.abandon("for the test")
    assert trial_state(layout, TRIAL).state == "done"
    third = claimed(layout, again=True, sources=NEW)
    assert third.start["resumed_from"] == {"attempt": 2, "step": 4}
    attempt_of(layout, third).finish(DONE)
    assert claim(layout, TRIAL, asked, retry=True, again=True) == Taken(State.DONE)


def test_records_have_every_field_of_the_wire_format(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.runners.attempts.attempt.gpu_software", lambda device: {"sdpa": f"math on {device}"})
    attempt = begin(layout)
    configured = read_json(layout.start(TRIAL, 1))
    assert {name: configured[name] for name in ABOUT} == ABOUT
    assert (configured["pid"], configured["pid_started"]) == (os.getpid(), process_started(os.getpid()))
    assert (configured["pid_space"], configured["resumed_from"]) == (pid_space(), None)
    assert set(configured["versions"]) == {"python", "torch", "triton", "ablate"}
    attempt.begins("cpu", "sdpa", None)
    assert read_json(layout.start(TRIAL, 1))["versions"] == configured["versions"]
    attempt.begins("cuda", "sdpa", {"files": 2})
    chosen = {"device": "cuda", "path": "sdpa", "data": {"files": 2}}
    chosen["versions"] = {**configured["versions"], "sdpa": "math on cuda"}
    assert read_json(layout.start(TRIAL, 1)) == {**configured, **chosen}
    attempt.finish(DONE)
    end = read_json(layout.end(TRIAL, 1))
    expected = {"status": "ok", "reason": None, "message": None, "traceback": None, "step": 9}
    expected |= {"parameters": 7, "operator_parameters": 2, "train_s": 0.5, "evaluate_s": 0.1}
    assert {name: end[name] for name in expected} == expected
    assert end["memory_bytes"] > 1e6
    assert end["wall_s"] >= 0


def test_the_software_of_a_gpu_names_the_kernels_that_are_enabled_in_order() -> None:
    found = gpu_software("cpu")
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    assert (found["cuda"], found["cudnn"]) == (torch.version.cuda, None if cudnn is None else str(cudnn))
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION], set_priority=True):
        assert gpu_software("cpu")["sdpa"] == "math, cudnn"


def test_rows_are_in_shards_before_the_end_says_ok(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = begin(layout)
    attempt.metrics(1, {"loss": 2.0, "rate": float("nan")})
    attempt.evaluation(1, "mse", 3.0, point={"sigma": 1.0}, items=5, se_items=None)
    attempt.probe(1, "number", 4.0, layer=0, head=None, point={})
    assert layout.shards() == []

    def full(self: ShardBuffer, durable: str) -> list[Path]:
        raise CampaignUnwritable("full")

    with monkeypatch.context() as patch:
        patch.setattr(ShardBuffer, "flush", full)
        with pytest.raises(CampaignUnwritable):
            attempt.finish(DONE)
        assert not layout.end(TRIAL, 1).exists()
    attempt.finish(DONE)
    assert {info.table: info.rows for info in map(verify_shard, layout.shards())} == {
        "metric": 2,
        "evaluation": 1,
        "probe": 1,
    }


def test_the_end_promises_all_shards_of_the_result_of_a_trial_that_was_resumed(layout: Layout) -> None:
    first = begin(layout)
    for step in (1, 2):
        first.metrics(step, {"loss": 0.5})
    first.flush()
    first.save(2, {"at": 2})
    first.metrics(3, {"loss": 0.5})
    first.flush()  # beyond the checkpoint: no result rests on it
    first.abandon("time")
    own = read_json(layout.end(TRIAL, 1))["wrote"]["metric"]
    second = begin(layout)
    assert second.restore() == (2, {"at": 2})
    second.metrics(3, {"loss": 0.25})
    second.finish(DONE)
    wrote = read_json(layout.end(TRIAL, 2))["wrote"]["metric"]
    assert (own["rows"], own["step"], wrote["rows"], wrote["step"]) == (3, 3, 3, 3)
    assert wrote["shards"][0] == own["shards"][0]
    assert own["shards"][1] not in wrote["shards"]
    assert {layout.shard(name).is_file() for name in wrote["shards"]} == {True}


WAYS: dict[str, Callable[[Attempt], None]] = {
    "save": lambda attempt: attempt.save(1, {}),
    "finish": lambda attempt: attempt.finish(DONE),
    "fail": lambda attempt: attempt.fail(killed_failure(3, "SIGKILL")),
    "abandon": lambda attempt: attempt.abandon("time"),
}


@pytest.mark.parametrize(
    ("how", "way"),
    [("taken over", "save"), ("taken over", "finish"), ("taken over", "fail"), *(("begun anew", way) for way in WAYS)],
)
def test_an_attempt_whose_trial_another_process_has_writes_nothing(layout: Layout, how: str, way: str) -> None:
    attempt = begin(layout)
    record = read_json(layout.start(TRIAL, 1))
    if how == "taken over":
        change_start(layout, 1, pid_started=1)  # as if its process had gone
        begin(layout)
    else:  # it was removed, and the other attempt has the same number
        record["started"] = 7.0
        shutil.rmtree(layout.trial(TRIAL))
        assert claimed(layout).number == 1
    change_start(layout, 1, **record)
    with pytest.raises(LeaseLost, match="another worker took this trial over"):
        WAYS[way](attempt)
    assert not layout.end(TRIAL, 1).exists()
    assert not layout.checkpoint(TRIAL, 1).exists()
    assert read_json(layout.start(TRIAL, 1)) == record


def kept(layout: Layout) -> list[str]:
    return sorted(path.name[:14] for path in layout.trial(TRIAL).rglob("checkpoint/*.pt"))


@pytest.mark.parametrize("saves", [1, 3])
def test_a_trial_that_is_stopped_often_keeps_two_checkpoints(layout: Layout, saves: int) -> None:
    for _ in range(5):
        attempt = begin(layout, sources=OLD)
        at = attempt.step
        for step in range(at + 1, at + saves + 1):
            attempt.save(step, {"at": step})
            assert len(kept(layout)) == min(step, KEEP)
        attempt.abandon("time")
    assert kept(layout) == [f"step-{5 * saves - 1:09d}", f"step-{5 * saves:09d}"]
    assert claimed(layout, sources=OLD).checkpoint == (5, 5 * saves, {"at": 5 * saves, "wrote": "{}"})


@pytest.mark.parametrize("end", ["fails", "is given back"])
@pytest.mark.parametrize("told", [True, False])
def test_an_attempt_that_does_not_finish_records_what_it_took(layout: Layout, end: str, told: bool) -> None:
    cost = {"steps": 3.0, "joules": 7.0, "peak_memory_bytes": 5.0}
    with begin(layout) as mine:
        if told:
            mine.took(cost)
        mine.fail(killed_failure(1, "SIGKILL")) if end == "fails" else mine.abandon("interrupted")
    found = read_json(layout.end(TRIAL, 1))
    assert found.get("cost") == (cost if told else None)
    assert (found["memory_bytes"] == 5) is told


def test_rows_of_a_deleted_attempt_are_dropped_and_others_stay(layout: Layout) -> None:
    layout.manifest(SUBMISSION).parent.mkdir(parents=True)
    layout.manifest(SUBMISSION).touch()
    attempt = begin(layout)
    attempt.metrics(1, {"loss": 1.0})
    attempt._buffer.add("metric", ("cd" * 16, 1, 1, "loss", 2.0, 0.0))
    shutil.rmtree(layout.attempt(TRIAL, 1))
    with pytest.raises(LeaseLost):
        attempt.save(1, {"x": 1})
    assert attempt._buffer.pending(TRIAL, 1) == {}
    assert len(attempt._buffer) == 1
