"""Overrides of the command line reach every trial that is trained, queued or trained once more."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pretend_slurm import PretendSlurm
from real_spec import STUMBLING, real_spec

from ablate.runners.cli.app import execute
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

SPEC = real_spec(
    "tried",
    training="steps=3",
    operators='softmax(), softmax().changed(score=Stumbling(), name="stumbling")',
    before=STUMBLING,
)
OVERRIDES = ["training.steps=2", "seeds=4..5"]
RECORDED = ["training.steps=2", "seeds=0..2,4..5"]


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


def planned(root: Path, name: str) -> list[tuple[str, int, int]]:
    return found(lines(Layout(root).grid_trials(name)))


def found(trials: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((line["label"], line["seed"], line["spec"]["training"]["steps"]) for line in trials)


def own_grid(root: Path) -> str:
    (name,) = (name for name in Layout(root).grid_names() if name != "tried")
    return name


ASKED = [(label, seed, 2) for label in ("softmax", "stumbling") for seed in (4, 5)]
PLANNED = [(label, seed, 2) for label in ("softmax", "stumbling") for seed in (0, 1, 2, 4, 5)]


def test_a_run_its_retry_and_its_repetition_use_them(
    tmp_path: Path, spec: Path, here: list[str], ablate: Callable
) -> None:
    root, stumble = tmp_path / "campaign", tmp_path / "stumble"
    stumble.touch()
    ablate("run", spec, *OVERRIDES, "--on", "inline", *here, code=4)
    name = own_grid(root)
    assert planned(root, name) == PLANNED
    assert read_json(Layout(root).grid_header(name))["of"] == "tried"
    assert json.loads(ablate("status", "--json", *here).out)["data"]["overrides"] == {name: RECORDED}
    stumble.unlink()
    ablate("retry", "--failed", *here)
    assert planned(root, name) == PLANNED
    layout = Layout(root)
    for line in lines(layout.grid_trials(name)):
        state = trial_state(layout, line["trial"])
        steps = [each.end["step"] for each in state.attempts[-1:]]  # type: ignore[index]
        assert (state.state, steps) == (("done", [2]) if line["seed"] in (4, 5) else ("pending", []))
    assert (
        ablate("run", spec, *reversed(OVERRIDES), "--on", "inline", *here).err.strip().startswith("4 were done before")
    )
    assert Layout(root).grid_names() == [name]
    assert ablate("repro", "operator=softmax", "seed=4", *here).out.startswith("equal: ")


def finished(root: Path, name: str) -> set[int]:
    layout = Layout(root)
    trials = lines(layout.grid_trials(name))
    return {line["seed"] for line in trials if trial_state(layout, line["trial"]).state == "done"}


def test_seeds_extend_a_grid_and_fewer_only_run_fewer(
    tmp_path: Path, spec: Path, here: list[str], ablate: Callable
) -> None:
    """No run changes the plan of another one, and no finished trial leaves a table."""
    root = tmp_path / "campaign"
    seeds = lambda: read_json(Layout(root).grid_header("tried"))["seeds"]  # noqa: E731
    for asked, ran, every in (("0", {0}, [0, 1, 2]), ("5..6", {0, 5, 6}, [0, 1, 2, 5, 6]), ("1", {0, 1, 5, 6}, None)):
        ablate("run", spec, f"seeds={asked}", "--on", "inline", *here)
        assert finished(root, "tried") == ran
        assert seeds() == (every or [0, 1, 2, 5, 6])
    before = Layout(root).grid_trials("tried").read_bytes()
    ablate("run", spec, "training.steps=1", "seeds=0..0", "--on", "inline", *here)
    assert Layout(root).grid_trials("tried").read_bytes() == before
    assert finished(root, own_grid(root)) == {0}
    data = json.loads(ablate("plan", spec, "seeds=2..2", "--json", *here).out)["data"]
    assert (data["counts"]["to_do"], data["counts"]["pending"]) == (2, 2)
    ablate("run", spec, "--on", "inline", *here)  # all that is planned
    assert finished(root, "tried") == {0, 1, 2, 5, 6}


def test_plan_shows_them(spec: Path, here: list[str], ablate: Callable) -> None:
    assert f"  overrides: {' '.join(RECORDED)}\n" in ablate("plan", spec, *OVERRIDES, *here).out
    data = json.loads(ablate("plan", spec, *OVERRIDES, "--json", *here).out)["data"]
    assert (data["grids"][0]["overrides"], data["grids"][0]["of"]) == (RECORDED, "tried")
    assert (data["counts"]["to_do"], len(data["trials"])) == (4, 10)
    assert "did you mean 'steps'" in ablate("plan", spec, "training.step=2", *here, code=2).err
    assert "axis 'operator'" in ablate("run", spec, "operator.name=x", *here, code=2).err


def test_jobs_of_a_cluster_get_them(
    tmp_path: Path, spec: Path, slurm: PretendSlurm, here: list[str], ablate: Callable
) -> None:
    ablate("run", spec, *OVERRIDES, "--on", "slurm", "--gpus", "0", *here)
    layout = Layout(tmp_path / "campaign")
    (submission,) = layout.submission_ids()
    manifest = lines(layout.manifest(submission))
    assert found(manifest) == ASKED
    assert planned(layout.root, own_grid(layout.root)) == PLANNED
    assert execute(["run", str(spec), *OVERRIDES, "--on", "slurm", "--gpus", "0", *here]) == 0
    assert list(layout.submission_ids()) == [submission]  # the same trials, all of which are queued
