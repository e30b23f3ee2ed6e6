"""A SLURM cluster for tests: started once, and empty and whole before each test that asks for it."""

import os
from collections.abc import Iterator

import pytest
from cluster.cluster import Cluster, missing
from cluster.needs import need


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skips where SLURM is not installed; in CI that is a failure."""
    need(missing())


@pytest.fixture(scope="session")
def running_cluster(slurm_installed: None) -> Iterator[Cluster]:
    """The cluster of all tests: two nodes of two CPUs and two GPUs, with accounting."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An idle cluster that this process and its children are clients of."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_"))]:
        monkeypatch.delenv(name)
    for name, value in running_cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield running_cluster
    running_cluster.clear()
