"""Disks, nodes, clocks and file servers that are not as they should be: it is told, and costs no result."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from cluster.tasks import in_queue
from cluster.user import PATIENCE_S, User, nothing_happened, over, wait_until_over

from ablate.runners.attempts.worker_logs import worker_logs

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


def test_a_full_disk_is_refused_and_costs_no_result_while_workers_run(disk: Disk, user: User) -> None:
    disk.fill()
    said = user.does(*user.run)
    assert (said.code, "a campaign needs 64 MB" in said.sentence) == (5, True)
    disk.free()
    disk.read_only(on=True)
    said = user.does(*user.run)
    assert (said.code, "cannot be written to; choose another campaign directory" in said.sentence) == (5, True)
    disk.read_only(on=False)
    assert nothing_happened(disk.cluster, user)
    record = user.writes("step_s=0.05, steps=500, seeds=(0,), checkpoint_s=0.3").queues()

    def begun() -> bool:
        """Whether both tasks have a log, which has room for some more lines on a full disk."""
        logs = worker_logs(user.layout, record.submission)
        return len(logs) == 2 and all("begins" in path.read_text() for path in logs.values())

    wait_for(begun, "training", PATIENCE_S)
    disk.fill()
    wait_for(lambda: all(each.restarts for each in in_queue(record.jobs) or []), "the workers to leave", PATIENCE_S)
    disk.free()
    wait_until_over(disk.cluster)
    for task in (0, 1):
        said = user.log(record.submission, f"{record.jobs[0]}_{task}")
        assert re.search("leaves: full; .*free some space, and workers go on from what was saved", said)
        assert "Traceback" not in said
    assert user.same_as_local()


# Nodes that are not like the others:


def on(node: str, line: str) -> str:
    """A line of set-up, as an argument of `Slurm`, that does something on one node alone."""
    return f"setup=({f'[ $SLURMD_NODENAME != {node} ] || {line}'!r},)"


ODD = "torch is 1.0 here and .* where it was submitted"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder that changes the environment of a node if it is on Python's path."""
    (tmp_path / "odd" / "torch-1.0.dist-info").mkdir(parents=True)
    return tmp_path / "odd"


def damage_snapshot(user: User) -> None:
    (tar,) = user.root.rglob("*.tar")
    tar.chmod(0o644)
    data = bytearray(tar.read_bytes())
    data[len(data) // 2] ^= 1
    tar.write_bytes(data)


BROKEN = "import os\nif 'NO_PLACE_FOR_IT' in os.environ:\n    import no_such_module\n"
FAULTS = {
    "torch": ("export PYTHONPATH={odd}", f"worker refused to train: {ODD}"),
    "snapshot": ("true", "do not have the hash in its name: it is not there or damaged; submit again"),
    "module": ("set -e; module load nix", "module: command not found; the lines before the worker ended with 127 on n"),
    "import": ("export NO_PLACE_FOR_IT=1", "No module named 'no_such_module'"),
}


def test_workers_that_no_node_can_run_say_why_give_up_and_go_on_without_the_fault(
    cluster: Cluster, user: User, odd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four campaigns at once, each with another fault."""
    users = {name: User(user.place / name, capsys) for name in FAULTS}
    records = {}
    for name, each in users.items():
        each.place.mkdir()
        setup = FAULTS[name][0].format(odd=odd)
        each.writes("seeds=(0,)", f"workers=1, setup=({setup!r},)")
        each.spec.write_text(BROKEN + each.spec.read_text())
        cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")  # nothing starts meanwhile
        records[name] = each.queues()
    damage_snapshot(users["snapshot"])
    cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
    wait_until_over(cluster)
    for name, each in users.items():
        said = each.log(records[name].submission, f"{records[name].jobs[0]}_0")
        assert "not queued again: no node of partition debug is left that has not refused it" in said
        place = ("--campaign", str(each.root))
        assert re.search(FAULTS[name][1], said + each.does("status", "--failures", *place).out)
        assert "gave up: 1 worker" in each.does("status", *place).out
        assert each.ok() == 0
        each.queues("--setup", "true")
    wait_until_over(cluster)
    assert all(each.same_as_local() for each in users.values())


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

    def none_is_lost_until_over() -> bool:
        assert not any(cell["lost"] for cell in user.status()["grids"]["toy"])
        return over(cluster)()

    wait_for(none_is_lost_until_over, "the workers to leave", 2 * PATIENCE_S)
    starts = [found.start for state in user.states().values() for found in state.attempts]
    assert len(starts) == 4
    assert max(start["started"] for start in starts) - min(start["started"] for start in starts) > 80_000
    assert user.same_as_local()


STALE = """\
import errno, io, os, random
_root, _draws = os.environ["STALE_ROOT"], random.Random(os.getpid())
def stale(function):
    def call(path, *rest, **named):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(_root) and _draws.random() < 0.1:
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
    wait_until_over(cluster)
    met = Counter((place / "log").read_text().split())
    assert met.total() > 50, met
    assert not any(
        found.end and found.end["status"] == "failed" for s in user.states().values() for found in s.attempts
    )
    assert user.same_as_local()
