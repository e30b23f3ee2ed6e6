"""What users and their clusters get wrong: one sentence, its exit code, nothing lost and nothing half-submitted."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from toy_campaign import run_quietly, tables
from toy_training import ENTRY

from runners.attempts.submission import Submission, read_submission_record
from runners.cli import execute
from runners.provenance.specfile import load_spec_file
from runners.slurm.queue import queued
from runners.slurm.submitting.arrays import logs, worker_log
from runners.slurm.submitting.submit import SubmitOptions
from runners.slurm.workers import WorkerRecord, read_workers
from store.layout import Layout
from store.status import TrialState, trial_state

TESTS = Path(__file__).parent.parent
SPEC = """\
from runners import Slurm
from toy_campaign import toy_grid
grid = toy_grid({grid})
slurm = Slurm(**{{**dict(gpus=0, time="30m", workers=2, mem="500M", signal_s=20, heartbeat_s=1.0), **dict({slurm})}})
"""
ABLATE = """\
import runners.slurm.submitting.submit as submit
from functools import partial
from toy_training import ENTRY
submit.SubmitOptions = partial(submit.SubmitOptions, entry=ENTRY)
from runners.cli import main
main()
"""
"""The command, with toy training."""
PATIENCE_S = 150.0


class Said:
    """What a command ended with."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def sentence(self) -> str:
        """What was wrong: the one line that it said."""
        (line,) = self.err.splitlines()
        assert line.startswith("ablate: ")
        return line.removeprefix("ablate: ")


class User:
    """Somebody at a terminal, with a spec file and a campaign in `place`."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place = place
        self._capsys = capsys
        self.spec = place / "toys.py"
        self.lives(place / "campaign")

    def lives(self, root: Path) -> None:
        """The campaign is there."""
        self.root = root
        self.layout = Layout(root)

    def writes(self, grid: str = "", slurm: str = "") -> "User":
        self.spec.write_text(SPEC.format(grid=grid, slurm=slurm))
        return self

    @property
    def run(self) -> tuple[str, ...]:
        return ("run", str(self.spec), "--on", "slurm", "--campaign", str(self.root))

    def does(self, *words: str) -> Said:
        """The command, in this process."""
        self._capsys.readouterr()
        code = execute(list(words))
        return Said(code, *self._capsys.readouterr())

    def shell(self, *words: str, code: str = ABLATE, **environ: str) -> "subprocess.Popen[str]":
        """The command as a process of its own."""
        paths = os.pathsep.join(map(str, (TESTS.parent, TESTS)))
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, *words],
            env={**os.environ, "PYTHONPATH": paths, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def queues(self, *options: str) -> Submission:
        """Submit, which works; the record."""
        said = self.does(*self.run, *options)
        assert said.code == 0, said.err
        return read_submission_record(self.layout, self.layout.submission_ids()[-1])

    def status(self) -> dict[str, Any]:
        said = self.does("status", "--json", "--campaign", str(self.root))
        assert said.code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)["data"]
        return found

    def states(self) -> dict[str, TrialState]:
        return {key: trial_state(self.layout, key) for key in self.layout.trial_keys()}

    def ok(self) -> int:
        return sum(state.status == "ok" for state in self.states().values())

    def training(self) -> bool:
        return any(path.stat().st_size > 0 for path in self.layout.trials.glob("*/*/*/heartbeat"))

    def workers(self) -> list[WorkerRecord]:
        found = self.layout.submission_ids()
        return [each for submission in found for each in read_workers(self.layout, submission)]

    def log(self, submission: str, job: str) -> str:
        return worker_log(self.layout, submission, job).read_text()

    def same_as_local(self) -> bool:
        """Whether the campaign says what an undisturbed one on this machine says, and each trial is complete once."""
        (grid,) = load_spec_file(self.spec).values()
        local = self.place / "local"
        run_quietly(local, grid)
        mine, theirs = tables(self.root), tables(local)
        mine.pop("trial"), theirs.pop("trial")  # specs say where they ran
        ends = [[found.end for found in state.attempts if found.end] for state in self.states().values()]
        return mine == theirs and all(sum(end["status"] == "ok" for end in each) == 1 for each in ends)


def over(cluster: Cluster) -> Callable[[], bool]:
    return lambda: not cluster.run("squeue", "-h")


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> User:
    monkeypatch.setattr("runners.slurm.submitting.submit.SubmitOptions", partial(SubmitOptions, entry=ENTRY))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ABLATE_TREES", str(tmp_path / "trees"))
    return User(tmp_path, capsys).writes()


@pytest.fixture(autouse=True)
def _logs_of_a_failure(tmp_path: Path) -> Iterator[None]:
    """What workers said belongs to the report of a test."""
    yield
    for path in sorted(tmp_path.glob("*/submissions/*/logs/*")):
        print(f"{path.name}:\n{path.read_text()[-3000:]}")  # noqa: T201


# Before anything is submitted:


def nothing_happened(cluster: Cluster, user: User) -> bool:
    return not user.root.exists() and over(cluster)()


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


# A disk that is full or cannot be written:


class Disk:
    """A small disk that this machine and the nodes of `cluster` see."""

    def __init__(self, place: Path, cluster: Cluster) -> None:
        self.place = place
        self.cluster = cluster
        self._ballast = place / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        self._ballast.unlink()

    def read_only(self, *, on: bool) -> None:
        mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.place))


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@pytest.fixture
def disk(user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Nodes see what was mounted before they were switched on, so the cluster is one of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=70m", "none", str(place))
    user.lives(place / "campaign")
    try:
        with Cluster(Shape(gpus=0, accounting=False)) as other:
            monkeypatch.setenv("SLURM_CONF", other.environment["SLURM_CONF"])
            yield Disk(place, other)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_without_room_is_refused(disk: Disk, user: User) -> None:
    disk.fill()
    said = user.does(*user.run)
    assert said.code == 5
    assert "a campaign needs 64 MB of free disk" in said.sentence
    assert nothing_happened(disk.cluster, user)
    disk.free()
    disk.read_only(on=True)
    said = user.does(*user.run)
    assert said.code == 5
    assert "cannot be written to; choose another campaign directory" in said.sentence
    assert nothing_happened(disk.cluster, user)


def test_a_disk_that_is_full_while_workers_run_costs_no_result(disk: Disk, user: User) -> None:
    record = user.writes("step_s=0.05, steps=200, seeds=(0,), checkpoint_s=0.3").queues()
    wait_for(user.training, "training", PATIENCE_S)
    disk.fill()
    wait_for(lambda: all(each.restarts for each in queued(record.jobs).rows), "the workers to leave", PATIENCE_S)
    disk.free()
    wait_for(over(disk.cluster), "the workers to leave", PATIENCE_S)
    for task in (0, 1):
        said = user.log(record.submission, f"{record.jobs[0]}_{task}")
        assert re.search("leaves: error; .*No space left on device; free some space and run the same command", said)
        assert "Traceback" not in said
    assert user.same_as_local()


# Nodes that are not like the others:


@contextmanager
def closed(cluster: Cluster) -> Iterator[None]:
    """Nothing that is queued starts meanwhile."""
    cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    try:
        yield
    finally:
        cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")


def on(node: str, line: str) -> str:
    """A line of set-up, as an argument of `Slurm`, that does something on one node alone."""
    return f"setup=({f'[ $SLURMD_NODENAME != {node} ] || {line}'!r},)"


ODD = "torch is 1.0 here and .* where it was submitted"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """What makes another environment of a node where it is on Python's path."""
    (tmp_path / "odd" / "torch-1.0.dist-info").mkdir(parents=True)
    return tmp_path / "odd"


def test_a_node_with_another_torch_is_told_and_left(cluster: Cluster, user: User, odd: Path) -> None:
    record = user.writes("seeds=(0,)", "workers=1, " + on("n1", f"export PYTHONPATH={odd}")).queues()
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert [(each.node, each.left) for each in user.workers()] == [("n1", "refused"), ("n2", "done")]
    assert re.search(ODD, user.log(record.submission, f"{record.jobs[0]}_0"))
    assert user.same_as_local()
    told = user.does("failures", "--campaign", str(user.root))
    assert re.search(f"worker refused to train: {ODD}(.|\\n)*leave it out with --exclude n1", told.out), told.out


def test_where_every_node_refuses_the_worker_gives_up(cluster: Cluster, user: User, odd: Path) -> None:
    record = user.writes("seeds=(0,)", f"workers=1, setup=('export PYTHONPATH={odd}',)").queues()
    refused(cluster, user, record, ODD)
    assert user.does("failures", "--campaign", str(user.root)).out.count("worker refused to train") == 1
    assert {(each.node, each.left) for each in user.workers()[:2]} == {("n1", "refused"), ("n2", "refused")}


def refused(cluster: Cluster, user: User, record: Submission, words: str) -> None:
    """The worker left without a trial and said why, nothing waits for ever, and without the fault it goes on."""
    wait_for(over(cluster), "the worker to leave", PATIENCE_S)
    said = user.log(record.submission, f"{record.jobs[0]}_0")
    assert re.search(words, said)
    assert "not queued again: no node of partition debug is left that has not refused it" in said
    shown = f"FAILED, exit 87|{words}"  # what the worker said, and where none came so far the account of its job
    wait_for(lambda: re.search(shown, user.does("status", "--campaign", str(user.root)).out), "its account")
    assert user.ok() == 0
    user.queues("--setup", "true")
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    assert user.same_as_local()


def test_a_damaged_snapshot_is_refused_and_made_anew(cluster: Cluster, user: User) -> None:
    with closed(cluster):
        record = user.writes("seeds=(0,)", "workers=1").queues()
        (tar,) = user.root.rglob("*.tar")
        tar.chmod(0o644)
        data = bytearray(tar.read_bytes())
        data[len(data) // 2] ^= 1
        tar.write_bytes(data)
    refused(cluster, user, record, "do not have the hash in its name: it is not there or damaged; submit again")


def test_a_line_of_set_up_that_fails_is_told(cluster: Cluster, user: User) -> None:
    record = user.writes("seeds=(0,)", "workers=1, setup=('set -e', 'module load nix')").queues()
    refused(cluster, user, record, "module: command not found(.|\n)*the lines before the worker ended with 127 on n1")


def test_a_spec_that_cannot_be_imported_on_nodes_is_told(cluster: Cluster, user: User) -> None:
    user.writes("seeds=(0,)", "workers=1, setup=('export NO_PLACE_FOR_IT=1',)")
    broken = "import os\nif 'NO_PLACE_FOR_IT' in os.environ:\n    import no_such_module\n"
    user.spec.write_text(broken + user.spec.read_text())
    refused(cluster, user, user.queues(), "No module named 'no_such_module'")


def test_a_spec_file_that_is_gone_does_not_matter(cluster: Cluster, user: User) -> None:
    with closed(cluster):
        user.writes("seeds=(0,)").queues()
        text = user.spec.read_text()
        user.spec.unlink()
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    user.spec.write_text(text)
    assert user.same_as_local()


# Clocks and file servers:

JUMPS = """\
import time
_time, _began = time.time, time.monotonic()
def jumping():
    age = time.monotonic() - _began
    return _time() + (86400 if 4 <= age < 8 else -86400 if age >= 8 else 0)
time.time = jumping
"""


def test_a_clock_that_jumps_costs_nothing(cluster: Cluster, user: User) -> None:
    place = user.place / "jumps"
    place.mkdir()
    (place / "sitecustomize.py").write_text(JUMPS)
    asked = "workers=2, " + on("n1", f"export PYTHONPATH={place}")
    user.writes("step_s=0.05, steps=200, seeds=(0, 1), checkpoint_s=0.3", asked).queues()
    wait_for(user.training, "training", PATIENCE_S)
    while not over(cluster)():
        assert not any(cell["lost"] for cell in user.status()["grids"]["toy"])
    starts = [found.start for state in user.states().values() for found in state.attempts]
    assert len(starts) == 4
    assert max(start["started"] for start in starts) - min(start["started"] for start in starts) > 80_000
    assert user.same_as_local()


STALE = """\
import errno, io, os, random
_root, _draws = os.environ["STALE_ROOT"], random.Random(os.getpid())
def stale(function):
    def call(path, *rest, **named):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(_root) and _draws.random() < 0.05:
            with open(os.environ["STALE_LOG"], "a") as log: log.write(function.__name__ + "\\n")
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), os.fspath(path))
        return function(path, *rest, **named)
    return call
for _name in ("open", "stat", "mkdir", "rename", "replace", "scandir", "listdir", "unlink"):
    setattr(os, _name, stale(getattr(os, _name)))
io.open = stale(io.open)
"""


def test_a_stale_handle_is_tried_again(cluster: Cluster, user: User) -> None:
    place = user.place / "stale"
    place.mkdir()
    (place / "sitecustomize.py").write_text(STALE)
    lines = f"export PYTHONPATH={place} STALE_ROOT={user.root} STALE_LOG={place}/log"
    user.writes("step_s=0.02, seeds=range(8), checkpoint_s=0.1", f"workers=2, setup=({lines!r},)").queues()
    wait_for(over(cluster), "the workers to leave", PATIENCE_S)
    met = Counter((place / "log").read_text().split())
    assert met.total() > 50, met
    assert not any(
        found.end and found.end["status"] == "failed" for s in user.states().values() for found in s.attempts
    )
    assert user.same_as_local()


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
    assert left <= {".pt", ".parquet"}  # what was being written just then
    if how == "moved":
        user.lives(now)
        (submission,) = user.layout.submission_ids()
        for log in logs(user.layout, submission).iterdir():
            assert "is gone: the campaign was moved or removed meanwhile; run the same command" in log.read_text()
            assert "Traceback" not in log.read_text()
        user.queues()
        wait_for(over(cluster), "the workers to leave", PATIENCE_S)
        assert user.same_as_local()


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
    "from runners.cli",
    "import os\nreal = submit.write_submission_record\ndef kill(layout, found):\n"
    "    if None not in found.jobs and found.jobs:\n        os.kill(os.getpid(), 9)\n    real(layout, found)\n"
    "submit.write_submission_record = kill\nfrom runners.cli",
)


@pytest.mark.parametrize("then", ["cancelled", "submitted again"])
def test_jobs_of_a_shell_that_was_killed_are_found(cluster: Cluster, user: User, then: str) -> None:
    """Between sbatch and the record of what it answered."""
    shell = user.shell(*user.run, code=KILLED)
    assert shell.communicate(timeout=PATIENCE_S)[1] == ""
    assert shell.returncode == -signal.SIGKILL
    (submission,) = user.layout.submission_ids()
    assert {each["standing"] for each in user.status()["workers"]} == {"held"}
    assert cluster.run("squeue", "-h", "-o", "%j %r").split() == [f"ablate-{submission}", "JobHeldUser"]
    if then == "cancelled":
        said = user.does("cancel", "--campaign", str(user.root))
        assert (said.code, "2 workers leave" in said.out) == (0, True)
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
