"""One request for every backend: its data are those of earlier records, and the options of a cluster are its fields."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import QUIET, toy_grid

from ablate.grid import Grid, Measure
from ablate.runners.attempts.experiments import preload_of
from ablate.runners.attempts.run_request import OF_TRIALS, RunRequest
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.cli.app import app
from ablate.runners.cli.campaign_plan import plan_campaign
from ablate.runners.cli.commands import register_commands
from ablate.runners.execution.run import run_campaign
from ablate.store.files.layout import Layout

EARLIER = {
    "retry": True,
    "again": False,
    "heartbeat_s": 7.0,
    "oom": "halve",
    "entry": {"trial": "runners.trial:Trial", "train": "runners.training.loop:train", "preload": ["torch"]},
    "specs": ["/home/me/toys.py"],
    "files": ["code/toys.py"],
    "seen": "a field of another release",
}
"""`job` in the record of a submission by release 0.1."""


def test_a_worker_reads_a_request_of_an_earlier_release() -> None:
    request = RunRequest.read(EARLIER, Path("/tree"), root=Path("/campaign"), submission="s", place={"job": "1_0"})
    assert (request.retry, request.heartbeat_s, request.oom) == (True, 7.0, "halve")
    assert request.files == (Path("/tree/code/toys.py"),)
    assert request.preload == OF_TRIALS
    assert (request.root, request.submission, request.place) == (Path("/campaign"), "s", {"job": "1_0"})


def test_workers_import_beforehand_what_the_trials_of_a_grid_need(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toys, trials = toy_grid(seeds=[0]), Grid("g", tiny, seeds=[0])
    assert preload_of([trials]) == preload_of([toys, trials]) == preload_of([toys | trials]) == OF_TRIALS
    assert preload_of([toys]) == ("torch", "torch._dynamo", "torch.optim", "pyarrow.parquet")
    monkeypatch.delitem(sys.modules, "torch")
    assert preload_of([toys]) == ("pyarrow.parquet",)


def test_what_workers_need_survives_json() -> None:
    request = RunRequest(
        preload=("torch",), files=(Path("/a/toys.py"),), retry=True, again=True, oom="halve", heartbeat_s=2.5
    )
    assert RunRequest.read(json.loads(json.dumps(request.data())), Path("/")) == request


def test_a_plan_counts_what_a_run_with_the_same_request_trains(tmp_path: Path) -> None:
    """A finished trial without a readable result is among them."""
    grid = replace(toy_grid(seeds=[0]), measure=Measure(name="mse", point={"sigma": 1.0}))
    run_campaign(tmp_path, [grid], request=QUIET)
    shard = next(path for path in Layout(tmp_path).shards() if "-evaluation." in path.name)
    shard.write_bytes(shard.read_bytes()[:-1])
    request = replace(QUIET, root=tmp_path, again=True)
    assert plan_campaign(request, [grid]).to_do == 1
    assert run_campaign(tmp_path, [grid], request=request).done == 1


GIVEN = {
    "partition": "gpu", "account": "lab", "qos": "long", "constraint": "ib", "exclude": "g1", "time": "3h", "gpus": 2,
    "nodes": 2, "gpu_type": "h100", "cpus": 3, "mem": "2G", "per_gpu": 2, "max_parallel": 2,
    "setup": ("module load x",), "signal_s": 30, "oom": "halve",
}  # fmt: skip
IN_FILES = {"workers", "extra", "needs", "python", "gpu_option", "heartbeat_s"}


@pytest.mark.parametrize("field", sorted(Slurm.model_fields.keys() - IN_FILES))
def test_every_field_of_a_cluster_is_an_option_with_a_sentence(field: str) -> None:
    value = GIVEN[field]
    option, text = f"--{field.replace('_', '-')}", value[0] if isinstance(value, tuple) else str(value)
    register_commands(app, "run")
    _, bound, _ = app.parse_args(["run", "toys.py", "--on", "slurm", option, text], exit_on_error=False)
    request = bound.arguments["cluster"].request(Slurm(), None)
    assert request == Slurm().changed(**{field: value})
    (argument,) = [each for each in app["run"].assemble_argument_collection() if option in (each.parameter.name or ())]
    assert argument.parameter.help
