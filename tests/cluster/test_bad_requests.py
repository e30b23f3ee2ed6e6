"""Requests that a cluster rejects, and interrupted submissions: one sentence, its exit code, nothing half-submitted."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.cluster import Cluster, ClusterBroken, Shape, wait_for
from cluster.conftest import set_up_workers
from cluster.user import ABLATE, PATIENCE_S, User, over, wait_until_over

from ablate.runners.backends.slurm.submit.already_queued import AlreadyQueued
from ablate.runners.backends.slurm.submit.cluster_limits import arrays, read_limits

# Before anything is submitted:


def test_a_controller_that_is_away_is_said_and_files_still_tell(cluster: Cluster, user: User) -> None:
    with cluster.without_controller():
        said = user.does(*user.run)
        assert said.code == 5
        assert "wait for its controller" in said.sentence
        assert not user.root.exists()
    record = user.writes("step_s=0.1").queues()
    with cluster.without_controller():
        found = user.does("status", "--campaign", str(user.root))
        assert found.code == 0
        assert "unknown" in found.out
        again = user.does(*user.run)
        assert again.code == 5
    assert [record.submission] == user.layout.submission_ids()
    wait_for(lambda: user.ok() == 6, "all trials", PATIENCE_S)


# Submitting that goes wrong half-way:


def test_two_shells_that_submit_at_the_same_time_queue_each_trial_once(cluster: Cluster, user: User) -> None:
    for times in range(2):
        user.writes(f"seeds=range({2 * times}, {2 * times + 2})")
        shells = [user.shell(*user.run, "--replace") for _ in range(2)]  # the second plan lacks the seeds of the first
        said = [shell.communicate(timeout=PATIENCE_S)[1] for shell in shells]
        assert [shell.returncode for shell in shells] == [0, 0], said
        assert sorted("queued 4 trials on 2 workers" in each for each in said) == [False, True], said
    wait_until_over(cluster)
    assert len(user.layout.submission_ids()) == 2
    assert "nothing is left to train (8 were done before)" in user.writes("seeds=range(4)").does(*user.run).err
    assert user.same_as_local()
    assert all(len(state.attempts) == 1 for state in user.states().values())


KILLED = ABLATE.replace(
    "from ablate.runners.cli.app",
    "import os\nfrom ablate.runners.backends.slurm.submit import submit\n"
    "real = submit.write_submission_record\ndef kill(layout, found):\n"
    "    if None not in found.jobs and found.jobs:\n        os.kill(os.getpid(), 9)\n    real(layout, found)\n"
    "submit.write_submission_record = kill\nfrom ablate.runners.cli.app",
)


def test_jobs_of_shells_that_were_killed_are_found_and_trials_that_are_queued_twice_are_trained_once(
    cluster: Cluster, user: User, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between sbatch and the record of its answer. The jobs of one of three campaigns are then cancelled, and
    the trials of one are queued again in spite of them.
    """
    users = {name: User(user.place / name, capsys) for name in ("cancelled", "left", "twice")}
    for each in users.values():
        each.place.mkdir()
        each.writes("seeds=(0,), step_s=0.05", "workers=1")
    cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")  # nothing starts meanwhile
    try:
        shells = [each.shell(*each.run, code=KILLED) for each in users.values()]
        for shell in shells:
            shell.communicate(timeout=PATIENCE_S)
            assert shell.returncode == -signal.SIGKILL
        names = {f"ablate-{submission}" for each in users.values() for submission in each.layout.submission_ids()}
        assert set(cluster.run("squeue", "-h", "-o", "%j").splitlines()) == names
        assert {worker["standing"] for each in users.values() for worker in each.status()["workers"]} == {"queued"}
        said = users["cancelled"].does("cancel", "--campaign", str(users["cancelled"].root))
        assert (said.code, "1 waiting worker left the queue" in said.out) == (0, True)
        with monkeypatch.context() as patch:
            patch.setattr("ablate.runners.backends.slurm.submit.draft.queued_elsewhere", lambda *_: AlreadyQueued())
            users["twice"].queues()
        assert len(users["cancelled"].queues().jobs) == 1
        users["left"].queues()
    finally:
        cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
    wait_until_over(cluster)
    assert {name: len(each.layout.submission_ids()) for name, each in users.items()} == {
        "cancelled": 2,
        "left": 1,
        "twice": 2,
    }
    for each in users.values():
        assert each.same_as_local()
        assert all(len(state.attempts) == 1 for state in each.states().values())


@contextmanager
def instead_of_sbatch(user: User, monkeypatch: pytest.MonkeyPatch, body: str) -> Iterator[None]:
    """A script of that name is on PATH meanwhile, which knows `$real` and does `body` when a job is to be queued."""
    place = user.place / "wrapped"
    place.mkdir()
    real = shutil.which("sbatch")
    text = f'#!/bin/bash\nreal={real}\ncase "$*" in *--test-only*) ;; *) {body};; esac\nexec $real "$@"\n'
    (place / "sbatch").write_text(text)
    (place / "sbatch").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        yield


def test_an_sbatch_that_answers_nonsense_leaves_nothing_queued(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with instead_of_sbatch(user, monkeypatch, "$real \"$@\" >/dev/null; echo 'Welcome!'; exit 0"):
        said = user.does(*user.run)
    assert said.code == 5
    assert "named no job; it said 'Welcome!'; see whether the sbatch" in said.sentence
    assert not cluster.run("squeue", "-h", "-t", "PD,R,CF,S")  # a cancelled job may still be completing
    assert user.layout.submission_ids() == []


def test_the_job_is_not_the_first_number_that_a_site_prints(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "echo 'Submitted: job 7000007 is welcome'; $real \"$@\"; echo 'Submitted batch job is what you read'; exit"
    with instead_of_sbatch(user, monkeypatch, body):
        submission = user.queues()
    (array,) = submission.classes[0].arrays
    assert array.job != 7000007
    assert cluster.run("squeue", "-h", "-o", "%F %j").split()[:2] == [str(array.job), f"ablate-{submission.submission}"]
    wait_until_over(cluster)
    assert user.same_as_local()


def test_a_cluster_takes_as_many_workers_as_max_job_count_leaves_room_for_or_none(
    slurm_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without arrays, each worker is a job. When the second is refused, the first is taken back."""
    with Cluster(Shape(gpus=0, max_array=1, accounting=False)) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        set_up_workers(tmp_path, monkeypatch)
        found = read_limits()
        assert (found.array_size, arrays(3, found)) == (1, [1, 1, 1])
        with pytest.raises(ClusterBroken, match="Invalid job array"):
            cluster.submit("true", "--array=0-1")
        user, calls = User(tmp_path, capsys).writes("seeds=range(5)", "workers=10"), tmp_path / "calls"
        body = f"echo >> {calls}; [ $(wc -l < {calls}) != 2 ] || {{ echo 'Socket timed out' >&2; exit 1; }}"
        cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")  # no worker begins meanwhile
        with instead_of_sbatch(user, monkeypatch, body):
            said = user.does(*user.run)
        cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
        assert (said.code, "SLURM's controller cannot be reached; try again later" in said.sentence) == (5, True)
        assert over(cluster)()
        assert user.layout.submission_ids() == []
        assert len(user.queues().jobs) == 10
        wait_until_over(cluster)
        assert user.same_as_local()

    with Cluster(Shape(gpus=0, accounting=False, settings={"MaxJobCount": "8"})) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        user.lives(tmp_path / "other")
        cluster.submit("sleep 600", "-o", "/dev/null", "--array=0-1")
        said = user.does(*user.run)
        assert said.code == 0, said.err
        assert "5 workers and not 10, each of which trains more trials: " in said.err
        with pytest.raises(ClusterBroken):  # sbatch would wait for a place
            cluster.run("timeout", "5", "sbatch", "--hold", "-o", "/dev/null", "--wrap", "true")
        cluster.run("scancel", "--name=wrap")
        wait_until_over(cluster)
        assert {each.worker for each in user.workers()} <= set(range(5))
        assert user.same_as_local()
