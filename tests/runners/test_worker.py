"""Whatever a trial does, its worker records it and goes on with the next."""

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import toy_training
from row_fakes import Silent
from synthetic import write_start
from toy_campaign import run_quietly, toy_grid
from toy_training import ToyTrial

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.attempt import CampaignUnwritable
from ablate.runners.attempts.manifest import submission_id, trial_lines, write_submission
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import NodeUnsuitable, Outcome, Worker
from ablate.runners.processes.failure import Failure, failure_of
from ablate.runners.processes.training_context import Diverged, TrainingContext, TrainingResult
from ablate.store.files.layout import Layout
from ablate.store.files.shards import verify_shard
from ablate.store.files.trial_state import trial_state
from ablate.store.ingest.ingest import ingest
from ablate.store.store import Store
from ablate.training.tasks.user_files import unreadable


def worker_for(root: Path, lines: list[dict[str, Any]], **job: Any) -> Worker:
    submission = submission_id()
    write_submission(Layout(root), submission, lines)
    return Worker(RunRequest(root, submission, **job), 0, Silent(), own_process=False)


def end_of(root: Path, key: str, attempt: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Layout(root).end(key, attempt).read_bytes())
    return found


def toy_lines(**grid: Any) -> list[dict[str, Any]]:
    return list(trial_lines(toy_grid(seeds=[0], **grid)))


def test_a_failed_trial_has_a_reason_and_stops_no_other(tmp_path: Path) -> None:
    fates = {
        "diverges": ("diverged", "the loss was"),
        "raises": ("error", "ValueError: seed 0 met its fate"),
        "needs_memory": ("out_of_memory", "MemoryError"),
        "cannot_allocate": ("out_of_memory", "can't allocate memory"),
    }
    grid, layout = toy_grid(fates=[*fates, "ok"], seeds=[0]), Layout(tmp_path)
    result = run_quietly(tmp_path, grid)
    assert (result.done, result.failed) == (2, 8)
    for planned in grid.trials():
        if (fate := planned.axes["fate"]) != "ok":
            reason, message = fates[fate]
            end, log = end_of(tmp_path, planned.key), layout.log(planned.key, 1).read_text()
            assert (end["status"], end["reason"], end["step"]) == ("failed", reason, 10)
            assert message in end["message"]
            assert log.endswith("\n")
            assert (end["traceback"] or "") in log
            assert fate != "raises" or "in _meet" in end["traceback"]
            assert len(end["fingerprint"]) == 16
    shards = [verify_shard(path) for path in layout.shards()]
    assert sum(info.rows for info in shards if info.table == "metric") == 2 * (4 * 20 + 40)


def failure(message: str) -> Failure:
    with pytest.raises(ValueError, match=message) as raised:
        raise ValueError(message)
    return failure_of(raised.value)


def test_failures_of_one_cause_share_a_fingerprint_and_others_do_not() -> None:
    prints = {failure(f"size {size} at 0x{size:08x} is not {size / 7}").fingerprint for size in (3, 17, 4096)}
    assert len(prints) == 1
    with pytest.raises(ValueError, match="size") as elsewhere:
        raise ValueError("size 3 at 0x00000003 is not 0.42857142857142855")
    assert failure_of(elsewhere.value).fingerprint not in prints
    assert failure("another").fingerprint not in prints
    assert failure_of(Diverged(3, 1.0)).fingerprint == failure_of(Diverged(70, float("nan"))).fingerprint
    assert failure_of(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")).reason == "out_of_memory"
    assert failure_of(RuntimeError("shapes do not match")).reason == "error"
    assert failure_of(ValueError("out of memory")).reason == "error"


def test_a_spec_that_is_not_what_the_manifest_says_is_not_trained(tmp_path: Path) -> None:
    line = toy_lines()[0]
    outcome = worker_for(tmp_path, [{**line, "spec": {**line["spec"], "steps": 21}}]).run(0)
    assert outcome.state == "stopped"  # and not failed: the same command goes on with it
    assert "was edited after the run began" in end_of(tmp_path, line["trial"])["message"]


def test_a_worker_that_cannot_save_leaves_nothing_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise EnvironmentProblem("the disk is full")

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    worker = worker_for(tmp_path, toy_lines(checkpoint_s=0.0))
    with monkeypatch.context() as patch:
        patch.setattr("ablate.runners.attempts.attempt.save_checkpoint", full)
        with pytest.raises(CampaignUnwritable, match="the disk is full"):
            worker.run(0)
    (key,) = Layout(tmp_path).trial_keys()
    assert end_of(tmp_path, key)["status"] == "stopped"
    assert worker.run(0).state == "done"
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(CampaignUnwritable, match="free some space"):
        worker.run(1)


def too_big(fits: int, **execution: Any) -> list[dict[str, Any]]:
    """A trial that is out of memory, unless it is computed in so many micro-batches; it can be in six at most."""
    return toy_lines(fates=["too_big"], fits=fits, checkpoint_s=0.0, **execution)[:1]


def attempts_of(root: Path, key: str) -> list[tuple[int, str, str | None, int | None]]:
    """Micro-batches, status, reason and the step it went on from, of every attempt."""
    return [
        (
            found.start["accumulate"],
            (found.end or {})["status"],
            (found.end or {})["reason"],
            (found.start["resumed_from"] or {}).get("step"),
        )
        for found in trial_state(Layout(root), key).attempts
    ]


OUT = ("failed", "out_of_memory")


def test_a_trial_out_of_memory_goes_on_at_once_in_smaller_pieces_while_there_are_smaller_ones(tmp_path: Path) -> None:
    for fits, path in ((4, tmp_path / "four"), (7, tmp_path / "seven")):
        lines = too_big(fits, steps=100)
        outcome = worker_for(path, lines, oom="halve").run(0)
        expected = [(1, *OUT, None), (2, *OUT, 10), (4, "ok", None, 20) if fits == 4 else (4, *OUT, 20)]
        assert attempts_of(path, lines[0]["trial"]) == expected
        assert (outcome.state, outcome.attempt) == ("done" if fits == 4 else "failed", 3)
        assert (outcome.failure and outcome.failure.reason) == expected[-1][2]
    retried = worker_for(path, lines, oom="halve", retry=True).run(0)
    assert (retried.state, retried.attempt) == ("failed", 4)
    assert attempts_of(path, lines[0]["trial"])[3][:3] == (4, *OUT)


def attempts_made(root: Path) -> int:
    (key,) = Layout(root).trial_keys()
    return len(Layout(root).attempts(key))


def test_a_trial_given_back_stays_in_smaller_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = too_big(2, steps=30)
    monkeypatch.setattr(Silent, "stop_requested", lambda _: attempts_made(tmp_path) > 1)
    assert worker_for(tmp_path, lines, oom="halve").run(0).state == "stopped"
    monkeypatch.undo()
    assert worker_for(tmp_path, lines, oom="halve").run(0).state == "done"
    made = [found[:2] for found in attempts_of(tmp_path, lines[0]["trial"])]
    assert made == [(1, "failed"), (2, "stopped"), (2, "ok")]


@pytest.mark.parametrize("case", ["fail", "no micro-batches", "another error"])
def test_smaller_pieces_are_tried_only_if_they_were_asked_for_and_help(tmp_path: Path, case: str) -> None:
    oom = "fail" if case == "fail" else "halve"
    line = too_big(2)[0] if case != "another error" else toy_lines(fates=["raises"])[0]
    if case == "no micro-batches":
        del line["spec"]["execution"]["accumulate"]
    assert worker_for(tmp_path, [line], oom=oom).run(0).state == "failed"
    assert attempts_made(tmp_path) == 1
    assert worker_for(tmp_path, [line], oom=oom).run(0) == Outcome(0, "failed")


@pytest.mark.parametrize("fate", ["ok", "raises"])
@pytest.mark.parametrize("number", [1, 2], ids=["removed and begun anew", "taken over"])
def test_a_worker_whose_trial_another_has_leaves_it_alone(tmp_path: Path, fate: str, number: int) -> None:
    lines = toy_lines(fates=[fate])
    key, layout = lines[0]["trial"], Layout(tmp_path)
    worker = worker_for(tmp_path, lines)

    def begin_elsewhere(*_: object) -> None:
        if number == 1:
            shutil.rmtree(layout.trial(key))
        write_start(layout, key, number, host="elsewhere")

    worker._listener.row_stepped = begin_elsewhere
    assert worker.run(0) == Outcome(0, "running", 1)
    assert layout.end(key, 1).exists() == (number == 2)
    assert json.loads(layout.start(key, number).read_bytes())["host"] == "elsewhere"
    assert trial_state(layout, key).state == "running"


def test_numbers_of_workers_are_as_large_as_a_cluster_makes_them(tmp_path: Path) -> None:
    lines = toy_lines()
    submission, number = submission_id(), (12 * 100_000 + 99_999) * 1_000_000 + 10 * 1000 + 7
    write_submission(Layout(tmp_path), submission, lines)
    assert Worker(RunRequest(tmp_path, submission), number, Silent(), own_process=False).run(0).state == "done"
    ingest(tmp_path, threads=1)
    with Store.open(tmp_path, refresh=False) as store:
        assert store.sql("SELECT worker FROM attempt").rows() == [(number,)]
        assert {row[0] for row in store.sql("SELECT DISTINCT worker FROM shard").rows()} == {number}


@pytest.mark.parametrize("error", [KeyboardInterrupt, CampaignUnwritable], ids=["interrupt", "full"])
def test_an_interrupt_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """The trial is given back, unless another has begun it under the same number."""
    lines, removed = toy_lines(), []

    def train(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
        if not removed:
            removed.append(trial.key)
            shutil.rmtree(Layout(tmp_path).trial(trial.key))
            write_start(Layout(tmp_path), trial.key, 1, host="elsewhere")
        surroundings.metrics(1, {"loss": 1.0})
        raise error

    monkeypatch.setattr("toy_training.train", train)
    worker = worker_for(tmp_path, lines)
    for row in (0, 1):
        with pytest.raises(error):
            worker.run(row)
    assert not Layout(tmp_path).end(lines[0]["trial"], 1).exists()
    assert end_of(tmp_path, lines[1]["trial"])["status"] == "stopped"


def broken(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Out of memory, and CUDA refuses the process from then on."""
    raise MemoryError from RuntimeError("CUDA error: an illegal memory access was encountered")


def test_what_a_spent_process_cannot_train_another_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = too_big(2)
    worker = worker_for(tmp_path, lines, oom="halve")
    with monkeypatch.context() as patch:
        patch.setattr("toy_training.train", broken)
        spent = worker_for(tmp_path, lines, oom="halve")
        assert spent.run(0) == Outcome(0, "stopped", 1, spent=True)
        assert spent.run(0) == Outcome(0, "stopped", 2, spent=True)
        last = spent.run(0)  # it can be cut no smaller
        assert (last.state, last.attempt, last.spent) == ("failed", 3, True)
    assert [found[:3] for found in attempts_of(tmp_path, lines[0]["trial"])] == [(1, *OUT), (2, *OUT), (4, *OUT)]
    assert worker.run(0) == Outcome(0, "failed")


@pytest.mark.parametrize("place", [None, {"scheduler": "slurm", "job": "7", "restarts": 0}], ids=["local", "cluster"])
@pytest.mark.parametrize("appears", [True, False], ids=["late", "never"])
@pytest.mark.parametrize("case", ["reads", "opens", "checks"])
def test_on_a_cluster_a_file_may_appear_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any] | None, appears: bool, case: str
) -> None:
    """Without the file, the node is unsuitable if reading it failed; else the trial fails, as on one machine."""
    text, original, tried = tmp_path / "text.txt", toy_training.train, list[bool]()

    def train(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
        tried.append(text.exists())
        if appears and len(tried) == 3:
            text.write_text("here")
        try:
            text.read_text()
        except FileNotFoundError as error:
            if case == "reads":
                raise unreadable(text, error) from error
            if case == "checks":
                raise SpecError(f"there is no text {text}") from None
            raise
        return original(trial, surroundings)

    monkeypatch.setattr("toy_training.train", train)
    monkeypatch.setattr("ablate.runners.attempts.worker._WAITS_S", (0.01,) * 4)
    worker = worker_for(tmp_path / "campaign", toy_lines(), place=place)
    waits = place is not None
    if case == "reads" and not (appears and waits):
        with pytest.raises(NodeUnsuitable, match="cannot read"):
            worker.run(0)
    else:
        assert worker.run(0).state == ("done" if appears and waits else "failed")
    assert len(tried) == (1 if not waits else 3 if appears else 5)
    if waits and not appears:  # a worker waits once
        with contextlib.suppress(NodeUnsuitable):
            worker.run(1)
        assert len(tried) == 6
