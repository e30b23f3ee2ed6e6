"""A plan and a status of one campaign say the same of its trials."""

import json
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm, pretended
from real_spec import real_spec

from runners.cli.app import execute

SLURM = 'slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug")'


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendSlurm:
    return pretended(tmp_path, monkeypatch)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, int]:
    """Return the counts of a command by state; `status` lists no finished trials."""
    capsys.readouterr()
    assert execute([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    if words[0] == "plan":
        names = {"ok": "done"}
        found = {names.get(name, name): count for name, count in data["counts"].items() if name != "to_do"}
        return {name: count for name, count in found.items() if count}
    states = [trial["state"] for trial in data["trials"].values()]
    return {state: states.count(state) for state in set(states)}


def test_a_plan_counts_as_status_does_while_trials_are_queued_and_after(
    tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, root = tmp_path / "toys.py", tmp_path / "c"
    spec.write_text(real_spec("g", training="steps=2", seeds=1, after=SLURM))
    here = ["--campaign", str(root)]
    plan, status = ["plan", str(spec), *here], ["status", *here]
    assert execute(["run", str(spec), "--on", "inline", *here]) == 0
    spec.write_text(real_spec("g", training="steps=2", seeds=3, after=SLURM))
    assert asked(capsys, *plan) == {"done": 2, "pending": 4}
    assert execute(["run", str(spec), "--on", "slurm", *here]) == 0
    assert asked(capsys, *plan) == asked(capsys, *status) | {"done": 2} == {"done": 2, "queued": 4}
    assert execute(plan) == 0
    assert "  2 done, 4 queued, 0 pending\n" in capsys.readouterr().out
    slurm.says("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    assert asked(capsys, *plan) == asked(capsys, *status) | {"done": 2} == {"done": 2, "unknown": 4}
    slurm.works("squeue")
    slurm.forget()
    assert asked(capsys, *plan) == asked(capsys, *status) | {"done": 2} == {"done": 2, "pending": 4}


def test_a_plan_of_no_campaign_makes_none(
    tmp_path: Path, slurm: PretendSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "toys.py"
    spec.write_text(real_spec("g", training="steps=2", seeds=3, after=SLURM))
    assert asked(capsys, "plan", str(spec), "--campaign", str(tmp_path / "c")) == {"pending": 6}
    assert not (tmp_path / "c").exists()
    assert slurm.calls("squeue") == []
