"""A finished trial whose result was damaged is trained again when asked to."""

from dataclasses import replace
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm
from toy_campaign import toy_grid

from ablate.grid import Measure
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import submission_records
from ablate.runners.attempts.unreadable_results import find_unreadable, mark_unreadable
from ablate.runners.cli.app import execute
from ablate.runners.execution.run import run_campaign
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.store import Store

OPTIONS = RunRequest(progress=False, land_every_s=None)


GRID = replace(toy_grid(seeds=[0, 1]), measure=Measure(name="mse", point={"sigma": 1.0}))
SPEC = """
from dataclasses import replace

from ablate.grid import Measure
from ablate import Slurm
from toy_campaign import toy_grid

grid = replace(toy_grid(seeds=[0, 1]), measure=Measure(name="mse", point={"sigma": 1.0}))
slurm = Slurm(gpus=0, time="2h", workers=1)
"""


def test_a_trial_whose_shard_was_damaged_is_trained_again(tmp_path: Path) -> None:
    assert find_unreadable(tmp_path, ["toy"]) == frozenset()
    assert run_campaign(tmp_path, [GRID], request=OPTIONS).done == 4
    assert find_unreadable(tmp_path, ["toy"]) == frozenset()
    with Store.open(tmp_path) as store:
        before = store.sql("SELECT * FROM v_final ORDER BY ALL")
    shard = next(path for path in Layout(tmp_path).shards() if "-evaluation." in path.name)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    lost = find_unreadable(tmp_path, [GRID.name, "another"])
    assert len(lost) == 1
    mark_unreadable(Layout(tmp_path), lost)
    again = run_campaign(tmp_path, [GRID], request=OPTIONS)
    assert (again.done, again.skipped) == (1, 3)
    with Store.open(tmp_path) as store:
        assert store.unreadable(GRID.name) == []
        assert store.sql("SELECT * FROM v_final ORDER BY ALL").equals(before)


def test_it_is_queued_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", PretendSlurm(tmp_path / "slurm").path)
    path, root = tmp_path / "toys.py", tmp_path / "campaign"
    path.write_text(SPEC)
    run_campaign(root, [GRID], request=OPTIONS)
    layout = Layout(root)
    shard = next(path for path in layout.shards() if "-evaluation." in path.name)
    shard.write_bytes(shard.read_bytes()[:-1])
    command = ["run", str(path), "--on", "slurm", "--campaign", str(root), "--rerun-stale"]
    assert execute([*command, "--dry-run"]) == 0
    assert "\n1 trial in 1 class" in f"\n{capsys.readouterr().out}"
    assert execute([*command, "--budget", "much"]) == 2
    (tmp_path / "slurm" / "test_says").write_text("sbatch: error: invalid partition specified: none\n")
    assert execute([*command, "--partition", "none"]) == 2
    (tmp_path / "slurm" / "test_says").unlink()
    assert execute([*command[:2], "--workers", "0", *command[4:]]) == 2
    assert {trial_state(layout, key).state for key in layout.trial_keys()} == {"done"}
    assert execute(command) == 0
    lost = [key for key in layout.trial_keys() if trial_state(layout, key).state != "done"]
    (submission,) = [each for each in submission_records(layout) if getattr(each, "machine", None) == "slurm"]
    manifest = Manifest(layout, submission.submission)
    assert [manifest.trial(row) for row in range(len(manifest))] == lost
    assert len(lost) == 1
