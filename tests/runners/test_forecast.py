"""A plan shows the states that `ablate status` shows."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm, pretended
from real_spec import real_spec

AFTER = """
measure = Measure(name="mse", point={"sigma_x": 1.0, "sigma_f": 1.0})
grid = replace(grid, base=grid.base.changed(execution={}), baseline={"operator": "softmax"}, measure=measure)
alone = Needs(where={"operator": "SSA"}, per_gpu=1)
slurm = Slurm(partition="gpu", gpu_type="h100", per_gpu=2, workers=3, needs=(alone,))
"""
BEFORE = "from dataclasses import replace\nfrom grid import Measure\nfrom runners import Needs"
SPEC = real_spec("small", training="steps=1000", seeds=4, before=BEFORE, after=AFTER)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pretended(tmp_path, monkeypatch)
    path = tmp_path / "small.py"
    path.write_text(SPEC)
    return path


def test_a_plan_for_a_cluster_needs_none_and_goes_by_the_flags(
    spec: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    def plan(*flags: str) -> dict[str, object]:
        found = json.loads(ablate("plan", str(spec), "--on", "slurm", "--json", *flags).out)["data"]["estimate"]
        assert isinstance(found, dict)
        return found

    plain, cpu = plan(), plan("--gpus", "0", "--workers", "2")
    more = plan("--workers", "8", "--per-gpu", "1", "--max-parallel", "4")
    assert (plain["unit"], more["unit"], cpu["unit"]) == ("GPU-h", "GPU-h", "CPU-h")
    assert (plain["workers"], more["workers"]) == (3, 4)
    for flags, said in (
        (["--gpus", "1"], "--gpus is for --on slurm"),
        (["--on", "slurm", "--wait"], "--wait is for `ablate run`"),
        (["--on", "slurm", "--budget", "3gpuh"], "--budget is for `ablate run`"),
    ):
        assert said in ablate("plan", str(spec), *flags, code=2).err


def count_states(ablate: Callable, *words: str) -> dict[str, int]:
    """Return the counts of a command by state; `status` lists no finished trials."""
    data = json.loads(ablate(*words, "--json").out)["data"]
    if words[0] == "plan":
        counts = {**data["counts"], "done": data["counts"]["ok"]}
        return {name: count for name, count in counts.items() if count and name not in ("ok", "to_do")}
    return dict(Counter(trial["state"] for trial in data["trials"].values()))


def test_a_plan_counts_as_status_does(tmp_path: Path, slurm: PretendSlurm, ablate: Callable) -> None:
    spec, root = tmp_path / "toys.py", tmp_path / "c"
    after = 'slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug")'
    spec.write_text(real_spec("g", training="steps=2", seeds=1, after=after))
    here = ["--campaign", str(root)]
    plan, status = ["plan", str(spec), *here], ["status", *here]
    ablate("run", spec, "--on", "inline", *here)
    spec.write_text(real_spec("g", training="steps=2", seeds=3, after=after))
    assert count_states(ablate, *plan) == {"done": 2, "pending": 4}
    ablate("run", spec, "--on", "slurm", *here)
    assert count_states(ablate, *plan) == count_states(ablate, *status) | {"done": 2} == {"done": 2, "queued": 4}
    assert "  2 done, 4 queued, 0 pending\n" in ablate(*plan).out
    slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    assert count_states(ablate, *plan) == count_states(ablate, *status) | {"done": 2} == {"done": 2, "unknown": 4}
    slurm.works("squeue")
    slurm.forget()
    assert count_states(ablate, *plan) == count_states(ablate, *status) | {"done": 2} == {"done": 2, "pending": 4}
