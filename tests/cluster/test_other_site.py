"""A cluster unlike the one of the other tests: short arrays, a required account, two types of GPU."""

import getpass
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster.cluster import Cluster, Shape, wait_for
from cluster.conftest import train_toys
from cluster.user import User, over

from store.store import Store

GRID = "name='site', seeds=range(30)"
REQUEST = """
gpus=1, gpu_type="small", partition="debug", workers=24, max_parallel=4,
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
    arrays = Counter(each.job.partition("_")[0] for each in user.workers())
    assert max(arrays.values()) <= 20
    assert user.same_as_local()


CONTAINER = """\
#!/bin/bash
# stands for: apptainer exec image.sif python
[ "$1" = exec ] && [ "$2" = image.sif ] || exit 3
shift 3
export INSIDE=image.sif
exec {python} "$@"
"""


def test_a_command_of_the_site_starts_python_on_nodes(cluster: Cluster, user: User) -> None:
    """A container, and jobs with a name and comment of the user."""
    container = user.place / "apptainer"
    container.write_text(CONTAINER.format(python=sys.executable))
    container.chmod(0o755)
    extra = '{"job-name": "mine", "comment": "a grid", "mem-per-cpu": "400M", "export": "ALL"}'
    line = f"python='{container} exec image.sif python', mem=None, extra={extra}"
    submitted = user.writes("step_s=0.2", line).queues()
    wait_for(user.training, "training", 60)
    environments = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            environments.append(path.read_bytes())
    array = f"SLURM_ARRAY_JOB_ID={submitted.jobs[0]}".encode()
    assert any(b"INSIDE=image.sif" in each and array in each for each in environments)
    queued = cluster.run("squeue", "-h", "-j", str(submitted.jobs[0]), "-o", "%j %k").splitlines()
    assert set(queued) == {f"mine-{submitted.submission} a grid"}
    wait_for(over(cluster), "the workers to leave", 120)
    assert user.same_as_local()


@pytest.mark.parametrize("option", ["gpus", "gpus-per-node"])
def test_gpus_are_asked_for_as_the_site_wants_it(cluster: Cluster, user: User, option: str) -> None:
    user.writes("", f"gpus=1, gpu_type='toy', workers=1, gpu_option={option!r}").queues()
    wait_for(over(cluster), "the worker to leave", 120)
    assert user.same_as_local()
    assert {found.start["place"]["devices"] for state in user.states().values() for found in state.attempts} <= {
        "0",
        "1",
    }
