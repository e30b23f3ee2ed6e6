"""Worker tasks on a real cluster: they know where they are, leave when they are told to, and outlive their nodes."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster, wait_for
from slurm_node import TESTS, Sent, plain, send
from toy_campaign import run_quietly, tables, toy_grid
from toy_training import ENTRY

from store.files.trial_status import TrialState, trial_state

WARM = replace(ENTRY, preload=("torch", *ENTRY.preload))
GRID: dict[str, Any] = {"seeds": [0, 1, 2], "steps": 60, "fate_at": 100}
SLOW: dict[str, Any] = {**GRID, "step_s": 0.05, "checkpoint_s": 0.1}
PATIENCE_S = 150.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("undisturbed")
    assert run_quietly(root, toy_grid(**GRID)).ok == 6
    return plain(tables(root))


Submit = Callable[..., int]


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Submit:
    """Queue the workers of a submission; the last line of each task's output is the status it left with."""

    def queue(sent: Sent, *options: str) -> int:
        command = shlex.join(
            [sys.executable, "-u", "-m", "runners.slurm.node", str(sent.root), sent.submission, "0", "0"]
        )
        paths = f"PYTHONPATH={TESTS.parent}:{TESTS} PYTHONSAFEPATH=1 OMP_NUM_THREADS=1"
        script = f"srun --open-mode=append env {paths} {command}; echo status $?"
        out = ["-o", str(tmp_path / "%a.out"), "--open-mode=append", "--requeue", "-c2"]
        return cluster.submit(script, *out, f"--array=0-{sent.workers - 1}", *options)

    return queue


def states(sent: Sent) -> list[TrialState]:
    return [trial_state(sent.layout, key) for key in sent.layout.trial_keys()]


def begun(sent: Sent, node: str | None = None) -> bool:
    """Whether a trial has a checkpoint, on `node` if one is named."""
    for state in states(sent):
        for found in state.attempts:
            place = sent.layout.checkpoint(found.start["trial"], found.attempt)
            if found.end is None and place.exists() and node in (None, found.start["place"]["node"]):
                return True
    return False


def all_ok(sent: Sent) -> bool:
    found = states(sent)
    return len(found) == 6 and all(state.status == "ok" for state in found)


def test_workers_of_an_array_share_the_rows_and_say_where_they_are(
    cluster: Cluster, submit: Submit, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    sent = send(tmp_path / "c", toy_grid(**{**SLOW, "step_s": 0.02}), workers=2, entry=WARM)
    job = submit(sent)
    wait_for(lambda: not cluster.run("squeue", "-h"), "the workers to leave", PATIENCE_S)
    assert plain(tables(sent.root)) == undisturbed
    starts = [found.start for state in states(sent) for found in state.attempts]
    assert len(starts) == 6
    assert {start["place"]["job"] for start in starts} == {f"{job}_0", f"{job}_1"}
    assert {start["place"]["node"] for start in starts} == {"n1", "n2"}
    if cluster.own_host_names:
        assert all(start["host"] == start["place"]["node"] for start in starts)
    assert [(record.job, record.left) for record in sent.records()] == [(f"{job}_0", "done"), (f"{job}_1", "done")]
    assert [(tmp_path / f"{task}.out").read_text().splitlines()[-1] for task in (0, 1)] == ["status 0"] * 2


def test_usr2_makes_a_worker_save_and_leave(cluster: Cluster, submit: Submit, tmp_path: Path) -> None:
    sent = send(tmp_path / "c", toy_grid(**SLOW), entry=WARM)
    job = submit(sent)
    wait_for(lambda: begun(sent), "a checkpoint", PATIENCE_S)
    cluster.run("scancel", "--signal=USR2", str(job))
    wait_for(lambda: not cluster.run("squeue", "-h"), "the worker to leave", PATIENCE_S)
    assert (tmp_path / "0.out").read_text().splitlines()[-1] == "status 85"
    ends = [found.end for state in states(sent) for found in state.attempts]
    assert [end and end["status"] for end in ends].count("stopped") == 1
    assert None not in ends
    assert [record.left for record in sent.records()] == ["time"]


def test_a_worker_that_is_preempted_goes_on_where_it_was(
    cluster: Cluster, submit: Submit, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    sent = send(tmp_path / "c", toy_grid(**SLOW), entry=WARM)
    job = submit(sent, "-p", "preempt", "-w", "n1")
    wait_for(lambda: begun(sent), "a checkpoint", PATIENCE_S)
    cluster.submit("true", "-p", "urgent", "-w", "n1", "-c2", "-o", "/dev/null")
    wait_for(lambda: all_ok(sent), "all trials", PATIENCE_S)
    assert plain(tables(sent.root)) == undisturbed
    (interrupted,) = [state for state in states(sent) if len(state.attempts) > 1]
    places = [found.start["place"] for found in interrupted.attempts]
    assert [(place["job"], place["restarts"]) for place in places] == [(f"{job}_0", 0), (f"{job}_0", 1)]
    assert interrupted.attempts[1].start["resumed_from"] is not None


def test_what_a_failed_node_was_doing_is_done_by_another(
    cluster: Cluster, submit: Submit, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    sent = send(tmp_path / "c", toy_grid(**SLOW), workers=2, entry=WARM)
    submit(sent, "--no-requeue")
    wait_for(lambda: begun(sent, "n1") and begun(sent, "n2"), "both nodes to train", PATIENCE_S)
    cluster.fail("n1")
    wait_for(lambda: all_ok(sent), "all trials", PATIENCE_S)
    assert plain(tables(sent.root)) == undisturbed
    (taken,) = [state for state in states(sent) if len(state.attempts) > 1]
    assert [found.start["place"]["node"] for found in taken.attempts] == ["n1", "n2"]
