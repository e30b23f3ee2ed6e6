"""A cluster unlike the one of the other tests: short arrays, two types of GPU, no accounting."""

from collections import Counter
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape
from cluster.conftest import train_toys
from cluster.user import User

from store.store import Store

SPEC = """
from runners import Needs, Slurm
from toy_campaign import toy_grid

grid = toy_grid(name="site", seeds=range(5))
large = Needs(where={"operator.kind": "rising"}, gpu_type="large")
slurm = Slurm(time="30m", mem="500M", signal_s=20, gpus=1, gpu_type="small", workers=6, max_parallel=4, needs=(large,))
"""


def test_classes_of_trials_on_a_cluster_configured_unlike_ours(
    slurm_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_toys(tmp_path, monkeypatch)
    user = User(tmp_path, capsys)
    user.spec.write_text(SPEC)
    with Cluster(Shape(gpu_types=("small", "large"), max_array=2, accounting=False)) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        planned = user.does(*user.run, "--dry-run")
        assert planned.code == 0, planned.err
        assert "10 trials in 2 classes" in planned.out + planned.err
        assert not user.layout.submission_ids()
        assert user.does(*user.run, "--wait").code == 0
    assert user.ok() == 10
    with Store.open(user.root) as store:
        kinds = dict(store.sql("SELECT trial, operator FROM grid_trial").rows())
    nodes = {(kinds[key], state.attempts[-1].start["place"]["node"]) for key, state in user.states().items()}
    assert nodes == {("falling", "n1"), ("rising", "n2")}
    arrays = Counter(each.job.partition("_")[0] for each in user.workers())
    assert (len(arrays), max(arrays.values())) == (4, 2)
    assert user.same_as_local()
