"""Looking after a campaign on a real cluster: what status says is so; just what is meant is cancelled or retried."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster, wait_for
from cluster.conftest import set_up_workers
from cluster.user import SPEC

from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.attempts.worker_logs import logs
from ablate.runners.cli.app import execute
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

ENDLESS = SPEC.format(grid="'tended', steps=10**6, step_s=0.05, checkpoint_s=1.0", slurm="cpus=2, signal_s=60")

Ask = Callable[..., Any]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Runs a command on the campaign; what it printed, parsed with --json. It must end with `code`."""

    def run(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert execute([*words, "--campaign", str(tmp_path / "campaign")]) == code, capsys.readouterr().err
        said = capsys.readouterr().out
        return json.loads(said)["data"] if "--json" in words else said

    return run


@pytest.fixture
def layout(cluster: Cluster, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A campaign of six trials that never end by themselves, on two workers, both of which are training."""
    set_up_workers(tmp_path, monkeypatch)
    path = tmp_path / "tended.py"
    path.write_text(ENDLESS)
    ask("run", str(path), "--on", "slurm")
    wait_for(
        lambda: sum(each["step"] is not None for each in ask("status", "--json")["running"]) == 2, "two trials", 120
    )
    return Layout(tmp_path / "campaign")


def states(ask: Ask) -> Counter[str]:
    """How many of the six trials are in each state."""
    cells = ask("status", "--json")["grids"]["tended"]
    names = ("done", "failed", "running", "queued", "pending", "stopped", "lost", "unknown")
    return Counter({name: n for name in names if (n := sum(cell[name] for cell in cells))})


@pytest.mark.slow
def test_trials_are_seen_called_off_and_trained_again(
    cluster: Cluster, layout: Layout, ask: Ask, tmp_path: Path
) -> None:
    found = ask("status", "--json")
    running = found["running"]
    assert {each["host"] for each in running} <= set(cluster.nodes)
    assert {worker["standing"] for worker in found["workers"]} == {"running"}
    assert {worker["node"] for worker in found["workers"]} == {each["host"] for each in running}
    assert all(0 < worker["time_left_s"] <= 1800 for worker in found["workers"])
    assert states(ask) == {"running": 2, "queued": 4}
    assert running[0]["trial"][:8] in ask("logs", running[0]["trial"][:12], "--worker")

    first, second = (each["trial"] for each in running)
    ask("cancel", first[:12])
    wait_for(lambda: trial_state(layout, first).live is None, "the trial to be given back", 60)
    assert trial_state(layout, first).attempts[-1].end["status"] == "stopped"  # type: ignore[index]
    assert any(layout.checkpoint(first, 1).glob("step-*.pt"))
    wait_for(lambda: states(ask) == {"running": 2, "queued": 3, "stopped": 1}, "another trial in its place", 60)
    assert trial_state(layout, second).live is not None

    ask("cancel")
    wait_for(lambda: not cluster.run("squeue", "-h"), "the queue to be empty", 120)
    wait_for(lambda: states(ask) == {"stopped": 3, "pending": 3}, "all to be given back", 60)
    assert "nothing is queued or running" in ask("cancel")

    ask("retry", first[:12], "--spec", str(tmp_path / "tended.py"))
    manifest = layout.manifest(layout.submission_ids()[-1]).read_text().splitlines()
    assert [json.loads(line)["trial"] for line in manifest] == [first]
    wait_for(lambda: states(ask) == {"running": 1, "stopped": 2, "pending": 3}, "the one trial", 120)
    resumed = trial_state(layout, first).attempts[-1].start["resumed_from"]
    assert resumed is not None
    ask("cancel")


@pytest.mark.slow
def test_what_a_dead_node_had_is_queued_and_then_lost(cluster: Cluster, layout: Layout, ask: Ask) -> None:
    """The nodes of both workers: one loses its power, then somebody cancels the jobs behind the campaign's back."""
    assert {each["host"] for each in ask("status", "--json")["running"]} == {"n1", "n2"}
    cluster.fail("n1")
    wait_for(lambda: states(ask) == {"running": 1, "queued": 5}, "the heartbeat to be missed", 60)
    record = read_submission_record(layout, layout.submission_ids()[0])
    cluster.run("scancel", *map(str, record.jobs))
    wait_for(lambda: states(ask) == {"lost": 1, "stopped": 1, "pending": 4}, "the loss to be noticed", 120)
    said = "".join(path.read_text() for path in logs(layout, record.submission).iterdir())
    assert "not queued again: it was cancelled" in said
    assert "ablate: queued again" not in said
    assert "lost: 1 trial" in ask("status")
