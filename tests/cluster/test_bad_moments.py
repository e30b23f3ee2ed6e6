"""Changes while workers run, and limits of a run: the tables equal those of an undisturbed run."""

import shutil
import signal
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from cluster.conftest import train_toys
from cluster.user import PATIENCE_S, User, wait_until_over

from runners.slurm.worker_records import logs


def saved(user: User) -> bool:
    """Whether every worker has saved: what the first one imports to do it has come."""
    found = list(user.layout.trials.glob("*/*/*/checkpoint/step-*.pt"))
    return len({path.parent for path in found}) == 2


def test_an_attempt_whose_directory_is_removed_is_done_again(cluster: Cluster, user: User) -> None:
    user.writes("step_s=0.1, steps=60, seeds=(0,), checkpoint_s=60.0").queues()
    wait_for(user.training, "training", PATIENCE_S)
    shutil.rmtree(next(user.layout.trials.glob("*/*/*/heartbeat")).parent)
    wait_until_over(cluster)
    assert user.same_as_local()


def test_a_campaign_that_is_moved_is_not_begun_anew_and_goes_on_where_it_is(cluster: Cluster, user: User) -> None:
    user.writes("step_s=0.1, steps=100, seeds=(0,), checkpoint_s=1.0").queues()
    wait_for(lambda: saved(user), "both workers to save", PATIENCE_S)
    before, now = user.root, user.place / "elsewhere"
    before.rename(now)
    wait_until_over(cluster)
    left = {path.suffix for path in before.rglob("*") if path.is_file()}
    assert left <= {".pt", ".parquet"}  # files that were being written
    user.lives(now)
    (submission,) = user.layout.submission_ids()
    for log in logs(user.layout, submission).iterdir():
        assert "is gone: the campaign was moved or removed meanwhile; run the same command" in log.read_text()
        assert "Traceback" not in log.read_text()
    user.queues()
    wait_until_over(cluster)
    assert user.same_as_local()


def test_an_interrupt_leaves_the_workers_alone(cluster: Cluster, user: User) -> None:
    shell = user.writes("step_s=0.05, steps=100").shell(*user.run, "--wait")
    wait_for(user.training, "training", PATIENCE_S)
    shell.send_signal(signal.SIGINT)
    _, err = shell.communicate(timeout=PATIENCE_S)
    assert shell.returncode == 130
    assert "the workers go on without this shell" in err
    assert "Traceback" not in err
    wait_until_over(cluster)
    assert user.same_as_local()


def test_trials_on_two_gpus_see_one_each(cluster: Cluster, user: User) -> None:
    user.writes("step_s=0.1", "workers=1, gpus=2").queues()
    wait_until_over(cluster)
    devices = [found.start["place"]["devices"] for state in user.states().values() for found in state.attempts]
    assert (len(devices), set(devices)) == (6, {"0", "1"})


def test_a_worker_that_slurm_kills_for_its_memory_is_no_breakdown(
    slurm_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster without control groups kills whole workers: JobAcctGatherParams=OverMemoryKill."""
    kills = {"JobAcctGatherParams": "OverMemoryKill", "JobAcctGatherFrequency": "1"}
    gather = {"JobAcctGatherType": "jobacct_gather/linux"}
    with Cluster(Shape(gpus=0, accounting=False, settings={**gather, **kills})) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        train_toys(tmp_path, monkeypatch)
        user = User(tmp_path, capsys).writes("fates=['ok', 'hogs'], seeds=(0,), step_s=0.05", "mem='900M'")
        user.queues()
        wait_until_over(cluster)
        reasons = [[(found.end or {}).get("reason") for found in state.attempts] for state in user.states().values()]
        assert user.ok() == 2
        assert sorted(map(str, reasons)) == ["['out_of_memory']"] * 2 + ["[None]"] * 2
