"""A cluster unlike the one of the other tests: short arrays, a required account, two types of GPU."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape
from cluster.conftest import train_toys
from cluster.user import User

from runners.attempts.submission_record import read_submission_record
from store.store import Store

GRID = "name='site', seeds=range(30)"
REQUEST = """
gpus=1, gpu_type="small", partition="debug", workers=50, max_parallel=4,
needs=(Needs(where={"operator.kind": "rising"}, gpu_type="large"),),
"""


@pytest.fixture
def site(slurm_installed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Arrays of at most 20 tasks; the partition refuses the account that users have by default."""
    partition = "debug Nodes=ALL Default=YES MaxTime=01:00:00 AllowAccounts=research"
    shape = Shape(
        gpu_types=("small", "large"), max_array=20, settings={"PartitionName": partition, "EnforcePartLimits": "ALL"}
    )
    with Cluster(shape) as cluster:
        cluster.run("sacctmgr", "-i", "modify", "user", getpass.getuser(), "set", "DefaultAccount=small")
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster


def test_sixty_trials_on_a_cluster_configured_unlike_ours(
    site: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_toys(tmp_path, monkeypatch)
    user = User(tmp_path, capsys)
    user.spec.write_text(
        "from runners import Needs, Slurm\nfrom toy_campaign import toy_grid\n"
        f'grid = toy_grid({GRID})\nslurm = Slurm(time="30m", mem="500M", signal_s=20, {REQUEST})\n'
    )
    refused = user.does(*user.run)
    assert refused.code == 2, refused.err
    assert "account" in refused.sentence
    assert not user.layout.submission_ids()

    planned = user.does(*user.run, "--account", "research", "--dry-run")
    assert planned.code == 0
    assert "60 trials in 2 classes" in planned.out + planned.err
    assert user.does(*user.run, "--account", "research", "--wait").code == 0
    assert user.ok() == 60
    with Store.open(user.root) as store:
        kinds = dict(store.sql("SELECT trial, operator FROM grid_trial").rows())
    nodes = {(kinds[key], state.attempts[-1].start["place"]["node"]) for key, state in user.states().items()}
    assert nodes == {("falling", "n1"), ("rising", "n2")}
    (submission,) = user.layout.submission_ids()
    arrays = [each.arrays for each in read_submission_record(user.layout, submission).classes]
    assert max(array.tasks for each in arrays for array in each) <= 20
    assert max(map(len, arrays)) > 1  # a class with more workers than a job array may have tasks
    assert user.same_as_local()
