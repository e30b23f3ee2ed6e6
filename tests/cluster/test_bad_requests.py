"""Requests that a cluster rejects, and interrupted submissions: one sentence, its exit code, nothing half-submitted."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from cluster.user import ABLATE, PATIENCE_S, User, nothing_happened, over

# Before anything is submitted:


def without(*commands: str, place: Path) -> str:
    """A PATH on which there are no such commands."""
    place.mkdir()
    for folder in reversed(os.environ["PATH"].split(":")):
        for path in Path(folder).glob("*"):
            if path.name not in commands and not (place / path.name).exists():
                (place / path.name).symlink_to(path)
    return str(place)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--partition", "moon"), 2, "there is no partition 'moon' for you; partitions here: debug, preempt, short"),
        (("--account", "moon"), 2, "there is no account 'moon' for you; your accounts: research, .*small"),
        (("--qos", "moon"), 2, "there is no qos 'moon' for you; QOS here: few, normal"),
        (("--gpus", "1", "--gpu-type", "h100"), 2, "partition debug has no GPU of type 'h100'; it has toy"),
        (("--partition", "short"), 2, "partition short allows 5 min .*; lower --time"),
        (("--time", "1m", "--signal-s", "50"), 2, "a time limit holds at least one checkpoint: .* save every 20 s"),
        (("--time", "0m"), 2, "a time limit is written 90m, 8h"),
        (("--exclude", "n[1-2]"), 2, r"--exclude n\[1-2\] leaves no node to train on; exclude fewer \(sbatch: "),
        (("--setup", "if then"), 2, "no shell that bash can read .syntax error near unexpected token `then'"),
        (("--budget", "many"), 2, "200gpuh"),
    ],
)
def test_what_the_cluster_does_not_have_is_said(
    cluster: Cluster, user: User, options: tuple[str, ...], code: int, words: str
) -> None:
    said = user.does(*user.run, *options)
    assert (said.code, said.out) == (code, "")
    assert re.search(words, said.sentence), said.err
    assert nothing_happened(cluster, user)


def test_without_slurm_it_says_so(cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", without("sbatch", place=user.place / "bin"))
        said = user.does(*user.run)
    assert said.code == 5
    assert "sbatch is not among the commands here, use --on local" in said.sentence
    assert nothing_happened(cluster, user)


def test_a_controller_that_is_away_is_said_and_files_still_tell(cluster: Cluster, user: User) -> None:
    with away(cluster):
        said = user.does(*user.run)
        assert said.code == 5
        assert "wait for its controller" in said.sentence
        assert not user.root.exists()
    record = user.writes("step_s=0.1").queues()
    with away(cluster):
        found = user.does("status", "--campaign", str(user.root))
        assert found.code == 0
        assert "unknown" in found.out
        again = user.does(*user.run)
        assert again.code == 5
    assert [record.submission] == user.layout.submission_ids()
    wait_for(lambda: user.ok() == 6, "all trials", PATIENCE_S)


@contextmanager
def away(cluster: Cluster) -> Iterator[None]:
    """The controller is stopped meanwhile."""
    cluster._machines.pop("slurmctld").end()
    try:
        yield
    finally:
        cluster._start_controller()
        wait_for(lambda: all(cluster.state(node) in {"idle", "mix", "alloc"} for node in cluster.nodes), "the nodes")


# Clusters with tight limits:


@pytest.mark.parametrize(("size", "calls"), [(1, 8), (3, 3)])
def test_arrays_are_as_large_as_the_cluster_takes_them(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch, size: int, calls: int
) -> None:
    with Cluster(Shape(gpus=0, max_array=size, accounting=False)) as other:
        monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
        record = user.writes("seeds=range(5)", "workers=8").queues()
        assert len(record.jobs) == calls
        wait_for(over(other), "the workers to leave", PATIENCE_S)
    assert sorted(each.worker for each in user.workers()) == list(range(8))
    assert user.same_as_local()


def test_an_account_that_takes_two_jobs_gets_two_workers(cluster: Cluster, user: User) -> None:
    cluster.run("sacctmgr", "-i", "modify", "user", "where", "account=small", "set", "MaxSubmitJobs=2")
    try:
        said = user.writes("seeds=range(5)", "workers=8").does(*user.run, "--account", "small")
        assert said.code == 0
        assert "2 workers and not 8, each of which trains more trials" in said.err
        more = user.writes("seeds=range(5, 8)", "workers=2").does(*user.run, "--account", "small")
        assert more.code == 5
        assert "you may queue 0 more jobs" in more.sentence
        wait_for(over(cluster), "the workers to leave", PATIENCE_S)
        assert user.ok() == 10
    finally:
        cluster.run("sacctmgr", "-i", "modify", "user", "where", "account=small", "set", "MaxSubmitJobs=4")


# Submitting that goes wrong half-way:


def test_two_shells_that_submit_at_the_same_time_queue_each_trial_once(cluster: Cluster, user: User) -> None:
    for times in range(5):
        user.writes(f"seeds=range({2 * times}, {2 * times + 2})")
        shells = [user.shell(*user.run) for _ in range(2)]
        said = [shell.communicate(timeout=PATIENCE_S)[1] for shell in shells]
        assert [shell.returncode for shell in shells] == [0, 0], said
        assert sorted("queued 4 trials on 2 workers" in each for each in said) == [False, True], said
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert len(user.layout.submission_ids()) == 5
    assert "nothing is left to train (20 were done before)" in user.writes("seeds=range(10)").does(*user.run).err
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
        assert (said.code, "running trials of 2 workers" in said.out) == (0, True)
        wait_for(over(cluster), "the jobs to be gone")
    user.queues()
    assert submission not in user.layout.submission_ids()
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
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


def test_an_array_that_is_refused_after_another_was_taken_leaves_nothing_queued(
    cluster: Cluster, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(Shape(gpus=0, max_array=3, accounting=False)) as other:
        monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
        user.writes("seeds=range(5)", "workers=8")
        calls = user.place / "calls"
        body = f"echo >> {calls}; [ $(wc -l < {calls}) != 2 ] || {{ echo 'Socket timed out' >&2; exit 1; }}"
        with instead_of_sbatch(user, monkeypatch, body):
            said = user.does(*user.run)
        assert said.code == 5
        assert "SLURM's controller cannot be reached; try again later" in said.sentence
        assert over(other)()
        assert user.layout.submission_ids() == []
        user.queues()
        wait_for(over(other), "the workers to leave", PATIENCE_S)
    assert user.same_as_local()
