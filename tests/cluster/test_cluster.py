"""The test cluster does what a real one does: the other tests may believe it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.chaos_laws import processes_that_know
from cluster.cluster import Cluster, wait_for

COUNT = "while true; do echo $SLURMD_NODENAME ${SLURM_RESTART_COUNT:-0} >> $OUT; sleep 0.1; done"
"""Writes a line every tenth of a second, so that one sees whether it still runs."""


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def job(cluster: Cluster, number: int, field: str) -> str:
    return cluster.run("squeue", "-h", "-j", str(number), "-o", field, check=False).strip()


@pytest.fixture
def count(cluster: Cluster, tmp_path: Path) -> Callable[..., tuple[int, Path]]:
    """Submit a job that counts into a file, and wait until it does."""

    def submit(*options: str) -> tuple[int, Path]:
        out = tmp_path / "count"
        number = cluster.submit(COUNT.replace("$OUT", str(out)), "-o", "/dev/null", *options)
        wait_for(lambda: lines(out), "the job to write")
        return number, out

    return submit


def test_each_node_has_its_own_name_and_its_own_gpus(cluster: Cluster) -> None:
    program = "import os, socket; print(socket.gethostname(), os.environ['CUDA_VISIBLE_DEVICES'])"
    said = cluster.run("srun", "-N2", "-n2", "--gpus-per-node=2", sys.executable, "-c", program).splitlines()
    assert sorted(said) == ["n1 0,1", "n2 0,1"]
    one = cluster.run("srun", "-w", "n2", "--gpus=1", "printenv", "CUDA_VISIBLE_DEVICES")
    assert one.split() == ["0"]


def test_what_ran_on_a_failed_node_is_silent_and_runs_elsewhere(
    cluster: Cluster, count: Callable[..., tuple[int, Path]]
) -> None:
    _, out = count("--requeue")
    cluster.run("sinfo")  # slurmctld may repeat this answer when it is asked for the node alone: half of it is in use
    failed = lines(out)[0].split()[0]
    (other,) = set(cluster.nodes) - {failed}
    cluster.fail(failed)
    written = lines(out)
    assert processes_that_know(out) == []
    wait_for(lambda: cluster.state(failed).startswith("down"), "the controller to notice")
    assert lines(out) == written
    wait_for(lambda: lines(out) != written, "the job to run again")
    assert set(lines(out)) == {f"{failed} 0", f"{other} 1"}
    cluster.heal(failed)
    assert cluster.run("srun", "-w", failed, "hostname").strip() == failed


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for the names of sockets, which may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="toy-cluster-", dir="/tmp") as path:
        yield Path(path)


def test_nothing_is_left_of_a_cluster_whose_holder_is_killed(slurm_installed: None, short_path: Path) -> None:
    root = short_path / "c"
    program = (
        "import sys, time; from pathlib import Path; from cluster.cluster import Cluster, Shape\n"
        f"with Cluster(Shape(nodes=1, accounting=False), Path({str(root)!r})) as cluster:\n"
        "    cluster.submit('setsid sleep 600 & sleep 600', '-o', '/dev/null')\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    wait_for(lambda: len(processes_that_know(root)) > 9, "the job's processes")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    wait_for(lambda: not processes_that_know(root), "the death of all")
    holder.stdout.close()
    holder.stdin.close()
