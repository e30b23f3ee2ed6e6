"""Requests that a cluster rejects, and interrupted submissions: one sentence, its exit code, nothing half-submitted."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from cluster.user import ABLATE, PATIENCE_S, User, over, wait_until_over

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
        shells = [user.shell(*user.run) for _ in range(2)]
        said = [shell.communicate(timeout=PATIENCE_S)[1] for shell in shells]
        assert [shell.returncode for shell in shells] == [0, 0], said
        assert sorted("queued 4 trials on 2 workers" in each for each in said) == [False, True], said
    wait_until_over(cluster)
    assert len(user.layout.submission_ids()) == 2
    assert "nothing is left to train (8 were done before)" in user.writes("seeds=range(4)").does(*user.run).err
    assert user.same_as_local()
    assert all(len(state.attempts) == 1 for state in user.states().values())


KILLED = ABLATE.replace(
    "from runners.cli.app",
    "import os\nreal = submit.write_submission_record\ndef kill(layout, found):\n"
    "    if None not in found.jobs and found.jobs:\n        os.kill(os.getpid(), 9)\n    real(layout, found)\n"
    "submit.write_submission_record = kill\nfrom runners.cli.app",
)


@pytest.mark.parametrize("then", ["cancelled", "submitted again"])
def test_jobs_of_a_shell_that_was_killed_are_found(cluster: Cluster, user: User, then: str) -> None:
    """Between sbatch and the record of what it answered."""
    shell = user.shell(*user.run, code=KILLED)
    shell.communicate(timeout=PATIENCE_S)
    assert shell.returncode == -signal.SIGKILL
    (submission,) = user.layout.submission_ids()
    assert {each["standing"] for each in user.status()["workers"]} == {"held"}
    assert cluster.run("squeue", "-h", "-o", "%j %r").split() == [f"ablate-{submission}", "JobHeldUser"]
    if then == "cancelled":
        said = user.does("cancel", "--campaign", str(user.root))
        assert (said.code, "2 waiting workers left the queue" in said.out) == (0, True)
        wait_for(over(cluster), "the jobs to be gone")
    user.queues()
    assert submission not in user.layout.submission_ids()
    wait_until_over(cluster)
    assert user.same_as_local()


@contextmanager
def instead_of_sbatch(user: User, monkeypatch: pytest.MonkeyPatch, body: str) -> Iterator[None]:
    """A script of that name is on PATH meanwhile, which knows `$real` and does `body` when a job is to be queued."""
    place = user.place / "wrapped"
    place.mkdir()
    real = shutil.which("sbatch")
    text = f'#!/bin/bash\nreal={real}\ncase "$*" in *--hold*) {body};; esac\nexec $real "$@"\n'
    (place / "sbatch").write_text(text)
    (place / "sbatch").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        yield


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "$real \"$@\" >/dev/null; echo 'Welcome!'; exit 0",
            "named no job; it said 'Welcome!'; see whether the sbatch",
        ),
        ("exit 0", "named no job; it said 'nothing'; see whether the sbatch"),
        ("echo boom >&2; exit 139", "sbatch refused the workers: boom"),
    ],
)
def test_an_sbatch_that_answers_nonsense_leaves_nothing_queued(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    with instead_of_sbatch(user, monkeypatch, body):
        said = user.does(*user.run)
    assert said.code == 5
    assert words in said.sentence
    assert over(cluster)()
    assert user.layout.submission_ids() == []


def test_the_job_is_not_the_first_number_that_a_site_prints(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "echo 'Submitted with care: job 7 is welcome'; $real \"$@\"; echo 'Submitted batch job is what you read'; exit"
    )
    with instead_of_sbatch(user, monkeypatch, body):
        submission = user.queues()
    (array,) = submission.classes[0].arrays
    assert array.job != 7
    assert cluster.run("squeue", "-h", "-o", "%F %j").split()[:2] == [str(array.job), f"ablate-{submission.submission}"]
    wait_until_over(cluster)
    assert user.same_as_local()


def test_as_many_workers_as_max_job_count_leaves_room_for_are_queued(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(gpus=0, max_array=1, accounting=False, settings={"MaxJobCount": "7"})
    with Cluster(shape) as other:
        monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
        other.submit("sleep 600", "-o", "/dev/null")
        said = user.writes("seeds=range(5)", "workers=10").does(*user.run)
        assert said.code == 0, said.err
        assert "5 workers and not 10, each of which trains more trials: " in said.err
        assert "fewer than 7 jobs (MaxJobCount)" in said.err
        queued = other.run("squeue", "-h", "-o", "%j").split()
        assert len([name for name in queued if name.startswith("ablate-")]) == 5
        other.run("scancel", "--name=wrap")
        wait_until_over(other)
    assert user.ok() == 10


def test_a_job_that_is_refused_after_another_was_taken_leaves_nothing_queued(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster without arrays, where each worker is a job."""
    with Cluster(Shape(gpus=0, max_array=1, accounting=False)) as other:
        monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
        user.writes("seeds=range(2)", "workers=3")
        calls = user.place / "calls"
        body = f"echo >> {calls}; [ $(wc -l < {calls}) != 2 ] || {{ echo 'Socket timed out' >&2; exit 1; }}"
        with instead_of_sbatch(user, monkeypatch, body):
            said = user.does(*user.run)
        assert said.code == 5
        assert "SLURM's controller cannot be reached; try again later" in said.sentence
        assert over(other)()
        assert user.layout.submission_ids() == []
        assert len(user.queues().jobs) == 3
        wait_until_over(other)
    assert sorted(each.worker for each in user.workers()) == [0, 1, 2]
    assert user.same_as_local()
