"""A cluster unlike the one of the other tests: short arrays, a required account, two types of GPU."""

import getpass
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cluster.cluster import Cluster, Shape
from cluster.user import User

from ablate.runners.attempts.submission_record import read_submission_record
from ablate.store.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
REQUEST = """slurm = Slurm(
    partition="debug",
    time="30m",
    gpu_type="small",
    workers=12,
    max_parallel=4,
    signal_s=20,
    needs=(Needs(where={"operator": "SSA"}, gpu_type="large"),),
)
"""
"""The user's request in place of the page's, by the page's table of fields."""
SHORT = ("training.steps=5", "task.evaluation.functions=4")
VALUES = (
    "SELECT label, seed, name, point, value FROM v_final "
    "WHERE seed < 2 AND NOT starts_with(name, 'system.') ORDER BY ALL"
)


@pytest.fixture
def site(slurm_installed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Arrays of at most 5 tasks; the partition refuses the account that users have by default."""
    partition = "debug Nodes=ALL Default=YES MaxTime=01:00:00 AllowAccounts=research"
    shape = Shape(
        gpu_types=("small", "large"), max_array=5, settings={"PartitionName": partition, "EnforcePartLimits": "ALL"}
    )
    with Cluster(shape) as cluster:
        cluster.run("sacctmgr", "-i", "modify", "user", getpass.getuser(), "set", "DefaultAccount=small")
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster


def write_spec(file: Path) -> None:
    """Write the page's file with another request."""
    _, block = PAGE.read_text(encoding="utf-8").split("```python\n", 1)
    text, _ = block.split("```", 1)
    grid, request, _ = text.partition("slurm = Slurm(")
    assert request
    file.write_text(grid.replace("    Measure,\n", "    Measure,\n    Needs,\n") + REQUEST, encoding="utf-8")


@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.version.cuda is not None, reason="a torch with CUDA refuses GPUs that are pretended")
def test_the_grid_of_the_documentation_on_a_cluster_configured_unlike_ours(
    site: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers train for real, on the CPU, since the GPUs are pretended; the page says that they do so."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ABLATE_TREES", str(tmp_path / "trees"))
    user = User(tmp_path, capsys)
    write_spec(user.spec)
    more = (*SHORT, "seeds=0..9")
    refused = user.does(*user.run, *more)
    assert refused.code == 2, refused.err
    assert "account" in refused.sentence
    assert not user.layout.submission_ids()

    planned = user.does(*user.run, *more, "--account", "research", "--dry-run")
    assert planned.code == 0
    assert "20 trials in 2 classes" in planned.out + planned.err
    trained = user.does(*user.run, *more, "--account", "research", "--wait")
    assert trained.code == 0, trained.err
    assert user.ok() == 20
    with Store.open(user.root) as store:
        labels = dict(store.sql("SELECT trial, label FROM grid_trial").rows())
        values = store.sql(VALUES).rows()
    starts = {key: state.attempts[-1].start for key, state in user.states().items()}
    assert {(labels[key], start["place"]["node"]) for key, start in starts.items()} == {
        ("softmax", "n1"),
        ("SSA", "n2"),
    }
    assert {start["device"] for start in starts.values()} == {"cpu"}
    (submission,) = user.layout.submission_ids()
    arrays = [each.arrays for each in read_submission_record(user.layout, submission).classes]
    assert max(array.tasks for each in arrays for array in each) <= 5
    assert max(map(len, arrays)) > 1  # a class with more workers than a job array may have tasks

    compared = user.does("table", "--campaign", str(user.root))
    assert re.findall("^(softmax|SSA) +10 ", compared.out, re.MULTILINE) == ["softmax", "SSA"]
    local = str(tmp_path / "local")
    assert user.does("run", str(user.spec), *SHORT, "seeds=0..1", "--campaign", local).code == 0
    with Store.open(Path(local)) as store:
        assert store.sql(VALUES).rows() == values
    assert len({(label, seed) for label, seed, *_ in values}) == 4
