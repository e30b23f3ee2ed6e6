"""Changes while workers run: the tables equal those of an undisturbed run."""

import shutil
import signal

import pytest
from cluster.cluster import Cluster, wait_for
from cluster.user import PATIENCE_S, User, wait_until_over

from ablate.runners.attempts.worker_logs import logs


def test_a_campaign_is_trained_to_the_end_though_an_attempt_is_removed_or_all_of_it_is_moved(
    cluster: Cluster, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two campaigns at once. The one that is moved is not begun anew where it was, and goes on where it is."""
    removed, moved = (User(user.place / name, capsys) for name in ("removed", "moved"))
    for each in (removed, moved):
        each.place.mkdir()
        each.writes("step_s=0.1, steps=100, seeds=(0,), checkpoint_s=1.0", "workers=1").queues()
    wait_for(removed.training, "training", PATIENCE_S)
    shutil.rmtree(next(removed.layout.trials.glob("*/*/*/heartbeat")).parent)
    wait_for(lambda: list(moved.layout.trials.glob("*/*/*/checkpoint/step-*.pt")), "a checkpoint", PATIENCE_S)
    before, now = moved.root, moved.place / "elsewhere"
    before.rename(now)
    wait_until_over(cluster)
    assert removed.same_as_local()
    left = {path.suffix for path in before.rglob("*") if path.is_file()}
    assert left <= {".pt", ".parquet"}  # files that were being written
    moved.lives(now)
    (submission,) = moved.layout.submission_ids()
    for log in logs(moved.layout, submission).iterdir():
        assert "is gone: the campaign was moved or removed meanwhile; run the same command" in log.read_text()
        assert "Traceback" not in log.read_text()
    moved.queues()
    wait_until_over(cluster)
    assert moved.same_as_local()


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
