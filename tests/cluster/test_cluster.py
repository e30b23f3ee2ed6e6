"""The test cluster does what a real one does: the other tests may believe it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.chaos_laws import processes_that_know
from cluster.cluster import Cluster, wait_for


def test_each_node_has_its_own_name_and_its_own_gpus(cluster: Cluster) -> None:
    program = "import os, socket; print(socket.gethostname(), os.environ['CUDA_VISIBLE_DEVICES'])"
    said = cluster.run("srun", "-N2", "-n2", "--gpus-per-node=2", sys.executable, "-c", program).splitlines()
    assert sorted(said) == ["n1 0,1", "n2 0,1"]
    one = cluster.run("srun", "-w", "n2", "--gpus=1", "printenv", "CUDA_VISIBLE_DEVICES")
    assert one.split() == ["0"]


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
