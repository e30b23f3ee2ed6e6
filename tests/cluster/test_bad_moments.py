"""Changes while workers run, and limits of a run: the tables equal those of an undisturbed run."""

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from cluster.user import PATIENCE_S, User, end_long_lives, over
from toy_training import ENTRY

from runners.attempts.claims import MOST_FRUITLESS
from runners.attempts.submission_record import read_submission_record
from runners.slurm.submit.submit import SubmitOptions
from runners.slurm.worker_records import logs

# A campaign that changes under its workers:


def saved(user: User) -> bool:
    """Whether every worker has saved: what the first one imports to do it has come."""
    found = list(user.layout.trials.glob("*/*/*/checkpoint/step-*.pt"))
    return len({path.parent for path in found}) == 2


def test_an_attempt_whose_directory_is_removed_is_done_again(cluster: Cluster, user: User) -> None:
    user.writes("step_s=0.1, steps=60, seeds=(0,), checkpoint_s=60.0").queues()
    wait_for(user.training, "training", PATIENCE_S)
    shutil.rmtree(next(user.layout.trials.glob("*/*/*/heartbeat")).parent)
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert user.same_as_local()


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_campaign_that_goes_away_is_not_begun_anew(cluster: Cluster, user: User, how: str) -> None:
    user.writes("step_s=0.1, steps=100, seeds=(0,), checkpoint_s=1.0").queues()
    wait_for(lambda: saved(user), "both workers to save", PATIENCE_S)
    before, now = user.root, user.place / "elsewhere"
    before.rename(now)
    if how == "removed":
        shutil.rmtree(now)
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    left = {path.suffix for path in before.rglob("*") if path.is_file()}
    assert left <= {".pt", ".parquet"}  # files that were being written
    if how == "moved":
        user.lives(now)
        (submission,) = user.layout.submission_ids()
        for log in logs(user.layout, submission).iterdir():
            assert "is gone: the campaign was moved or removed meanwhile; run the same command" in log.read_text()
            assert "Traceback" not in log.read_text()
        user.queues()
        wait_for(over(cluster), "the workers to leave", PATIENCE_S)
        assert user.same_as_local()


# Limits of a run:


def test_trials_out_of_memory_are_cut_until_they_fit(cluster: Cluster, user: User) -> None:
    user.writes("fates=['ok', 'too_big'], fits=4, seeds=(0,)").queues("--oom", "halve")
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert user.ok() == 4
    tried = sorted([found.start["accumulate"] for found in state.attempts] for state in user.states().values())
    assert tried == [[1], [1], [1, 2, 4], [1, 2, 4]]


def test_trials_out_of_memory_are_given_more_when_they_are_tried_again(cluster: Cluster, user: User) -> None:
    user.writes("fates=['ok', 'needs_memory'], seeds=(0,)").queues("--oom", "bigger")
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert {state.status for state in user.states().values()} == {"ok", "failed"}
    again = user.does("retry", "--failed", "--oom", "bigger", "--campaign", str(user.root))
    assert again.code == 0, again.err
    record = read_submission_record(user.layout, user.layout.submission_ids()[-1])
    assert "--mem=1000M" in "".join(record.scripts.values())
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert [len(state.attempts) for state in user.states().values() if state.status == "failed"] == [2, 2]


def test_a_budget_that_is_used_up_leaves_the_rest_for_later(cluster: Cluster, user: User) -> None:
    user.writes("step_s=0.1, seeds=range(20)", "workers=1").queues("--budget", "0.001cpuh")
    wait_for(over(cluster), "the worker to leave", PATIENCE_S + 60)
    assert [each.left for each in user.workers()] == ["budget"]
    assert 0 < user.ok() < 40
    user.writes("seeds=range(20)", "workers=2").queues()
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert user.same_as_local()


def test_a_trial_whose_evaluation_is_longer_than_every_life_fails_after_three(cluster: Cluster, user: User) -> None:
    grid = "fates=['evaluates'], steps=4, seeds=(0,), checkpoint_s=0.1, step_s=0.2"
    submitted = user.writes(grid, "signal_s=6, heartbeat_s=0.5").queues()
    ended: set[Path] = set()

    def ends() -> bool:
        end_long_lives(cluster, user.layout, submitted.jobs[0], ended)
        return over(cluster)()

    wait_for(ends, "the workers to leave", 2 * PATIENCE_S)
    for state in user.states().values():
        *lives, last = (attempt.end and attempt.end["status"] for attempt in state.attempts)
        assert last == "failed"
        assert lives[-MOST_FRUITLESS:] == [None] * MOST_FRUITLESS
        assert len(lives) <= 3 + MOST_FRUITLESS  # a slow machine may need several to train
        assert state.attempts[-1].end is not None
        assert "3 workers in a row" in state.attempts[-1].end["message"]


def test_an_interrupt_leaves_the_workers_alone(cluster: Cluster, user: User) -> None:
    shell = user.writes("step_s=0.05, steps=100").shell(*user.run, "--wait")
    wait_for(user.training, "training", PATIENCE_S)
    shell.send_signal(signal.SIGINT)
    _, err = shell.communicate(timeout=PATIENCE_S)
    assert shell.returncode == 130
    assert "the workers go on without this shell" in err
    assert "Traceback" not in err
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert user.same_as_local()


def test_trials_on_two_gpus_see_one_each(cluster: Cluster, user: User) -> None:
    user.writes("step_s=0.1", "workers=1, gpus=2").queues()
    wait_for(over(cluster), "the worker to leave", PATIENCE_S)
    devices = [found.start["place"]["devices"] for state in user.states().values() for found in state.attempts]
    assert (len(devices), set(devices)) == (6, {"0", "1"})


@pytest.mark.parametrize("oom", ["fail", "halve"])
def test_a_worker_that_slurm_kills_for_its_memory_is_no_breakdown(
    slurm_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], oom: str
) -> None:
    """A cluster without control groups kills whole workers: JobAcctGatherParams=OverMemoryKill."""
    kills = {"JobAcctGatherParams": "OverMemoryKill", "JobAcctGatherFrequency": "1"}
    gather = {"JobAcctGatherType": "jobacct_gather/linux"}
    with Cluster(Shape(gpus=0, accounting=False, settings={**gather, **kills})) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("runners.slurm.submit.submit.SubmitOptions", partial(SubmitOptions, entry=ENTRY))
        monkeypatch.setenv("ABLATE_TREES", str(tmp_path / "trees"))
        user = User(tmp_path, capsys).writes("fates=['ok', 'hogs'], seeds=(0,), step_s=0.05", "mem='900M'")
        user.queues("--oom", oom)
        wait_for(over(cluster), "the workers to leave", PATIENCE_S)
        reasons = [[(found.end or {}).get("reason") for found in state.attempts] for state in user.states().values()]
        assert user.ok() == (2 if oom == "fail" else 4)
        assert sorted(map(len, reasons)) == ([1, 1, 1, 1] if oom == "fail" else [1, 1, 2, 2])
        assert sum(each[0] == "out_of_memory" for each in reasons) == 2
