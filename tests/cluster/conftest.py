"""A SLURM cluster for tests: started once, and empty and whole before each test that asks for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.cluster import PACKAGES, Cluster, missing
from cluster.user import User


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skip without SLURM or without root; in CI (the variable CI is set) that is a failure."""
    lacks = [*missing(), *(["root"] if os.geteuid() else [])]
    if lacks:
        words = f"no test cluster without {', '.join(lacks)}; as root: apt-get install {PACKAGES}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(words)


@pytest.fixture(scope="session")
def running_cluster(slurm_installed: None) -> Iterator[Cluster]:
    """The cluster of all tests: two nodes of two CPUs and two GPUs, with accounting."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An idle cluster that this process and its children are clients of; workers have one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ABLATE_TREES", str(tmp_path / "trees"))
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_"))]:
        monkeypatch.delenv(name)
    for name, value in running_cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield running_cluster
    running_cluster.clear()


@pytest.fixture
def user(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    """Somebody whose trials are toys; what their workers said belongs to the report of a test."""
    set_up_workers(tmp_path, monkeypatch)
    yield User(tmp_path, capsys).writes()
    for path in sorted(tmp_path.glob("*/submissions/*/logs/*")):
        print(f"{path.name}:\n{path.read_text()[-3000:]}")  # noqa: T201


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test."""
    items.sort(key=lambda item: "test_chaos" not in item.nodeid)


def set_up_workers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers train in one thread and from snapshots in `place`."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ABLATE_TREES", str(place / "trees"))
