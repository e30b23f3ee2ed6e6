"""Whatever a trial does, its worker records it and goes on with the next."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import run_quietly, toy_grid
from toy_training import ENTRY, ToyTrial

from grid.errors import EnvironmentProblem, SpecError
from runners.campaign import CampaignUnwritable
from runners.checkpoint import checkpointed_step
from runners.failure import failure_of
from runners.manifest import submission_id, trial_lines, write_submission
from runners.surroundings import Diverged, Finished, Surroundings
from runners.worker import Entry, Job, Worker, resolve
from store.layout import Layout
from store.shards import verify_shard


class Silent:
    """A listener that never asks to stop."""

    def stop_requested(self) -> bool:
        return False

    def started(self, row: int, attempt: int, step: int) -> None: ...

    def stepped(self, row: int, step: int, steps: int, loss: float) -> None: ...


def worker_for(root: Path, lines: list[dict[str, Any]], entry: Entry = ENTRY) -> Worker:
    submission = submission_id()
    write_submission(Layout(root), submission, lines)
    return Worker(Job(root, submission, entry), 0, Silent(), own_process=False)


def end_of(root: Path, key: str, attempt: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Layout(root).end(key, attempt).read_bytes())
    return found


@pytest.mark.parametrize(
    ("fate", "reason", "message"),
    [
        ("diverges", "diverged", "the loss was"),
        ("raises", "error", "ValueError: seed 0 met its fate"),
        ("needs_memory", "out_of_memory", "MemoryError"),
        ("cannot_allocate", "out_of_memory", "can't allocate memory"),
    ],
)
def test_a_trial_that_fails_has_a_reason_and_does_not_stop_the_others(
    tmp_path: Path, fate: str, reason: str, message: str
) -> None:
    grid = toy_grid(fates=[fate, "ok"], seeds=[0])
    result = run_quietly(tmp_path, grid)
    assert (result.ok, result.failed) == (2, 2)
    failed = [planned for planned in grid.trials() if planned.axes["fate"] == fate]
    for planned in failed:
        end = end_of(tmp_path, planned.key)
        assert (end["status"], end["reason"], end["step"]) == ("failed", reason, 10)
        assert message in end["message"]
        assert len(end["fingerprint"]) == 16
    rows = [verify_shard(path) for path in Layout(tmp_path).shards()]
    assert sum(info.rows for info in rows if info.table == "metric") == 2 * (10 + 10 + 20 + 20)


def test_an_error_is_recorded_with_its_traceback_also_in_the_log(tmp_path: Path) -> None:
    run_quietly(tmp_path, toy_grid(fates=["raises"], seeds=[0]))
    layout = Layout(tmp_path)
    for key in layout.trial_keys():
        traceback = end_of(tmp_path, key)["traceback"]
        assert "in _meet" in traceback
        assert traceback in layout.log(key, 1).read_text()


def caught(function: Any, *arguments: Any) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # any: the failure is what is looked at
        function(*arguments)
    return raised.value


def breaks_at(size: int) -> None:
    raise ValueError(f"size {size} at 0x{size:08x} is not {size / 7}")


def breaks_elsewhere(size: int) -> None:
    raise ValueError(f"size {size} at 0x{size:08x} is not {size / 7}")


def test_failures_of_one_cause_share_a_fingerprint_and_others_do_not() -> None:
    prints = [failure_of(caught(breaks_at, size)).fingerprint for size in (3, 17, 4096)]
    assert len(set(prints)) == 1
    assert failure_of(caught(breaks_elsewhere, 3)).fingerprint != prints[0]
    assert failure_of(caught(int, "x")).fingerprint != prints[0]
    assert failure_of(Diverged(3, 1.0)).fingerprint == failure_of(Diverged(70, float("nan"))).fingerprint


def test_only_memory_errors_count_as_out_of_memory() -> None:
    assert failure_of(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")).reason == "out_of_memory"
    assert failure_of(RuntimeError("shapes do not match")).reason == "error"
    assert failure_of(ValueError("out of memory")).reason == "error"


def test_a_spec_that_is_not_what_the_manifest_says_is_not_trained(tmp_path: Path) -> None:
    line, *_ = trial_lines(toy_grid(seeds=[0]))
    edited = {**line, "spec": {**line["spec"], "steps": 21}}
    outcome = worker_for(tmp_path, [edited]).run(0)
    assert outcome.status == "stopped"  # and not failed: the same command goes on with it
    assert "was edited after the run began" in end_of(tmp_path, line["trial"])["message"]


def test_a_worker_without_a_record_leaves_no_attempt_that_looks_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise EnvironmentProblem("the disk is full")

    worker = worker_for(tmp_path, list(trial_lines(toy_grid(seeds=[0], checkpoint_s=0.0))))
    with monkeypatch.context() as patch:
        patch.setattr("runners.campaign.save_checkpoint", full)
        with pytest.raises(CampaignUnwritable, match="the disk is full"):
            worker.run(0)
    (key,) = Layout(tmp_path).trial_keys()
    assert end_of(tmp_path, key)["status"] == "stopped"
    assert worker.run(0).status == "ok"


def interrupted(trial: ToyTrial, surroundings: Surroundings) -> Finished:
    """Training that is interrupted from the keyboard."""
    surroundings.metrics(1, {"loss": 1.0})
    raise KeyboardInterrupt


def test_a_trial_that_is_interrupted_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toy_training.train", interrupted)
    worker = worker_for(tmp_path, list(trial_lines(toy_grid(seeds=[0]))))
    with pytest.raises(KeyboardInterrupt):
        worker.run(0)
    (key,) = Layout(tmp_path).trial_keys()
    assert end_of(tmp_path, key)["status"] == "stopped"


def test_a_trial_costs_one_shard_per_table_and_few_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_for(tmp_path, list(trial_lines(toy_grid(seeds=[0]))))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert worker.run(0).status == "ok"
    assert sorted(verify_shard(path).table for path in Layout(tmp_path).shards()) == ["evaluation", "metric", "probe"]
    assert len(synced) <= 13


def test_a_trial_that_is_done_keeps_no_checkpoints(tmp_path: Path) -> None:
    worker = worker_for(tmp_path, list(trial_lines(toy_grid(seeds=[0], checkpoint_s=0.0))))
    assert worker.run(0).status == "ok"
    (key,) = Layout(tmp_path).trial_keys()
    assert checkpointed_step(Layout(tmp_path), key) == 0


@pytest.mark.parametrize("reference", ["nowhere:train", "toy_training:nothing", "toy_training"])
def test_an_entry_that_cannot_be_imported_is_refused(reference: str) -> None:
    with pytest.raises(SpecError, match="an entry is written 'module:name'"):
        resolve(reference)
