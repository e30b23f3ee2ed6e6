"""Overrides of the command line reach every trial that is trained, queued or trained once more."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm
from real_spec import STUMBLING, real_spec

from runners.cli.app import execute
from store.files.layout import Layout
from store.files.trial_status import trial_state

SPEC = real_spec(
    "tried",
    training="steps=3",
    operators='softmax(), softmax().changed(score=Stumbling(), name="stumbling")',
    before=STUMBLING,
)
OVERRIDES = ["training.steps=2", "seeds=4..5"]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tried.py"
    path.write_text(SPEC)
    return path


@pytest.fixture
def here(tmp_path: Path) -> list[str]:
    return ["--campaign", str(tmp_path / "campaign")]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def planned(root: Path) -> list[tuple[str, int, int]]:
    found = lines(Layout(root).grid_trials("tried"))
    return sorted((line["label"], line["seed"], line["spec"]["training"]["steps"]) for line in found)


EXPECTED = [(label, seed, 2) for label in ("softmax", "stumbling") for seed in (4, 5)]


def test_a_run_its_retry_and_its_repetition_use_them(
    tmp_path: Path, spec: Path, here: list[str], ablate: Callable
) -> None:
    root, stumble = tmp_path / "campaign", tmp_path / "stumble"
    stumble.touch()
    ablate("run", spec, *OVERRIDES, "--on", "inline", *here, code=4)
    assert planned(root) == EXPECTED
    assert "overrides: training.steps=2 seeds=4..5" in ablate("status", *here).out
    assert json.loads(ablate("status", "--json", *here).out)["data"]["overrides"] == {"tried": OVERRIDES}
    stumble.unlink()
    assert "4 trained" not in ablate("retry", "--failed", *here).err
    assert planned(root) == EXPECTED
    layout = Layout(root)
    for line in lines(layout.grid_trials("tried")):
        state = trial_state(layout, line["trial"])
        assert (state.status, state.attempts[-1].end["step"]) == ("ok", 2)  # type: ignore[index]
    assert ablate("run", spec, *OVERRIDES, "--on", "inline", *here).err.strip().startswith("4 were done before")
    assert ablate("repro", "operator=softmax", "seed=4", *here).out.startswith("equal: ")


def test_a_command_says_that_a_grid_had_other_overrides(spec: Path, here: list[str], ablate: Callable) -> None:
    few = ["seeds=0", "training.steps=1"]
    assert "before" not in ablate("run", spec, *few, "--on", "inline", *here).err.partition("results in")[0]
    said = "grid 'tried' was planned with other overrides before: seeds=0 training.steps=1"
    assert said in ablate("plan", spec, *here).err
    assert said not in ablate("plan", spec, *reversed(few), *here).err


def test_plan_shows_them(spec: Path, here: list[str], ablate: Callable) -> None:
    found = ablate("plan", spec, *OVERRIDES, *here).out
    assert found.startswith("grid tried: 2 cells, 4 trials\n  overrides: training.steps=2 seeds=4..5\n")
    data = json.loads(ablate("plan", spec, *OVERRIDES, "--json", *here).out)["data"]
    assert data["grids"][0]["overrides"] == OVERRIDES
    assert "did you mean 'steps'" in ablate("plan", spec, "training.step=2", *here, code=2).err
    assert "axis 'operator'" in ablate("run", spec, "operator.name=x", *here, code=2).err


def test_jobs_of_a_cluster_get_them(
    tmp_path: Path, spec: Path, slurm: PretendSlurm, here: list[str], ablate: Callable
) -> None:
    ablate("run", spec, *OVERRIDES, "--on", "slurm", "--gpus", "0", *here)
    layout = Layout(tmp_path / "campaign")
    (submission,) = layout.submission_ids()
    manifest = lines(layout.manifest(submission))
    assert sorted((each["label"], each["seed"], each["spec"]["training"]["steps"]) for each in manifest) == EXPECTED
    assert planned(layout.root) == EXPECTED
    assert execute(["run", str(spec), *OVERRIDES, "--on", "slurm", "--gpus", "0", *here]) == 0
    assert list(layout.submission_ids()) == [submission]  # the same trials, all of which are queued
