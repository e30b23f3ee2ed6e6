"""Submissions to a real cluster: trained once, whatever becomes of the workers; refusals as SLURM words them."""

import sys
from pathlib import Path

import pytest
from cluster.cluster import Cluster, wait_for
from cluster.tasks import ended
from cluster.user import PATIENCE_S, User, nothing_happened, wait_until_over
from toy_campaign import tables

from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.cli.app import execute
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

LISTEN = "(while [ ! -e {place}/order ]; do sleep 0.1; done; kill $(cat {place}/order); rm {place}/order) &"


def test_what_was_submitted_is_trained_as_on_one_machine_whatever_is_edited(cluster: Cluster, user: User) -> None:
    """Trials on two GPUs see one each."""
    cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    cluster.run("scontrol", "update", "PartitionName=short", "State=DOWN")
    try:
        record = user.writes("step_s=0.1", 'gpus=2, max_parallel=1, partition="short,debug", time="5m"').queues()
        spec = user.spec.read_text()
        user.spec.write_text("raise RuntimeError('edited')\n")
        shown = cluster.run("scontrol", "show", "job", str(record.jobs[0]))
    finally:
        cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
        cluster.run("scontrol", "update", "PartitionName=short", "State=UP")
    assert "ArrayTaskThrottle=1" in shown
    assert "Partition=short,debug" in shown
    wait_until_over(cluster)
    user.spec.write_text(spec)
    assert {each.left for each in user.workers()} == {"done"}
    devices = [found.start["place"]["devices"] for state in user.states().values() for found in state.attempts]
    assert (len(devices), set(devices)) == (6, {"0", "1"})
    assert user.same_as_local()


def test_trials_of_held_jobs_are_queued_anew_and_failed_ones_not_tried_again(cluster: Cluster, user: User) -> None:
    def standings() -> set[str]:
        return {worker["standing"] for worker in user.status()["workers"]}

    grid = "fates=['ok', 'raises'], seeds=(0, 1)"
    (job,) = user.writes(grid, "workers=1, extra={'begin': 'now+1hour'}").queues().jobs
    assert standings() == {"queued"}
    cluster.run("scontrol", "hold", str(job))
    assert standings() == {"held"}
    said = user.writes(grid, "workers=1").does(*user.run)
    assert f"held (JobHeldAdmin); `scontrol release {job}` lets them go" in said.err
    (anew,) = read_submission_record(user.layout, user.layout.submission_ids()[-1]).jobs
    wait_for(lambda: list(ended(anew).values()) == ["FAILED 86:0"], "its account", PATIENCE_S)
    assert sorted(state.state for state in user.states().values()) == ["done"] * 4 + ["failed"] * 4


def send(user: User, name: str) -> None:
    """Send a signal to the one worker alone, from its node; its set-up is `LISTEN`."""
    wait_for(user.workers, "the record of a worker")
    (user.place / "order.tmp").write_text(f"-{name} {user.workers()[-1].pid}")
    (user.place / "order.tmp").rename(user.place / "order")


WORKERS = {
    "limit": ("step_s=0.5, steps=110, seeds=(0,)", "time='1m', per_gpu=2"),
    "told": ("step_s=0.4, seeds=(0,)", ""),
    "killed": ("step_s=0.4, seeds=(0,), checkpoint_s=1.0", "setup=({listen!r},)"),
    "cut_off": ("step_s=0.4, steps=40, seeds=(0,)", "setup=({listen!r},)"),
}


@pytest.mark.timeout(600)
def test_however_workers_end_their_trials_are_trained_to_the_end(
    cluster: Cluster, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run four workers. One is told to leave and one is killed. One must leave while the controller is away. The
    trials of one are longer than its time limit.
    """
    users = {name: User(user.place / name, capsys) for name in WORKERS}
    jobs = {}

    def queue(name: str) -> User:
        grid, slurm = WORKERS[name]
        each = users[name]
        each.place.mkdir()
        each.writes(grid, f"workers=1, {slurm.format(listen=LISTEN.format(place=each.place))}")
        (jobs[name],) = each.queues().jobs
        return each

    def said(name: str) -> str:
        return "".join(users[name].log(each, f"{jobs[name]}_0") for each in users[name].layout.submission_ids())

    queue("limit")
    wait_for(queue("told").training, "training")
    cluster.run("scancel", "--signal=TERM", f"{jobs['told']}_0")
    wait_for(queue("killed").training, "training")
    send(users["killed"], "KILL")
    # SLURM enforces no time limit while its controller is away, so `limit` must reach its own before.
    wait_for(lambda: all("queued again" in said(name) for name in jobs), "three to be queued again")
    wait_for(queue("cut_off").training, "training")
    with cluster.without_controller():
        send(users["cut_off"], "USR2")
        assert "wait for its controller" in user.does(*user.run).sentence
        wait_for(lambda: "the controller does not answer" in said("cut_off"), "the question to fail")
    assert not user.root.exists()
    wait_until_over(cluster)
    for name, each in users.items():
        assert (each.ok(), each.same_as_local()) == (2, True), said(name)
    assert "queued again: its time is over" in said("told")
    assert [each.restarts for each in users["told"].workers()] == [0, 1]
    assert "the worker died with status 137" in said("killed")
    assert any(each.left in ("time", "signal") for each in users["limit"].workers())
    assert max(each.restarts for each in users["limit"].workers()) >= 1


REFUSED = {
    "account='moon'": "the account is not one you may use there",
    "qos='moon'": "the qos is not one you may use",
    "partition='moon'": "there is no such partition",
    "partition='short'": "partition short allows 5 min 00 s",
    "constraint='moon'": "no node has what --constraint asks for",
    "exclude='moon'": "--exclude names a node that does not exist",
    "exclude='n[1-2]'": "--exclude n[1-2] leaves no node to train on; exclude fewer (sbatch: ",
    "extra={'reservation': 'moon'}": "the reservation does not exist",
    "extra={'moon': 'full'}": "names an option that sbatch does not have",
    "gpus=1, gpu_type='h100'": "no node of the partition has that many GPUs",
}


def test_what_the_cluster_does_not_have_is_said_and_nothing_is_left(cluster: Cluster, user: User) -> None:
    for fields, words in REFUSED.items():
        said = user.writes("", fields).does(*user.run)
        assert (said.code, said.out) == (2, "")
        assert words in said.sentence
    assert nothing_happened(cluster, user)


REAL = """
from ablate.grid import Grid, over
from ablate import LinearFunctions, ShiftGrid, Slurm, Training, Trial
from ablate.variants import gpt2, softmax, ssa

grid = Grid(
    name="real",
    base=Trial(
        task=LinearFunctions(points=5, batch=8, evaluation=ShiftGrid(functions=6, sequences=3, points=5)),
        model=gpt2(layers=1, heads=2, width=8, max_positions=16),
        operator=softmax(),
        training=Training(steps=12),
    ),
    axes=[over("operator", [softmax(), ssa()])],
    seeds=range(1),
)
cluster = Slurm(gpus=0, time="10m", signal_s=20, workers=2, mem="900M")
"""


def test_the_command_queues_follows_and_ends_like_a_run(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "real.py"
    spec.write_text(REAL)
    assert execute(["run", str(spec), "--on", "slurm", "--wait"]) == 0
    said = capsys.readouterr().err
    assert "queued 2 trials on 2 workers (job" in said
    assert "2 trained; results in campaigns/real" in said
    assert execute(["run", str(spec), "--on", "slurm"]) == 0
    assert "nothing is left to train (2 were done before)" in capsys.readouterr().err
    assert execute(["run", str(spec), "--on", "inline", "--campaign", "local"]) == 0
    assert tables(tmp_path / "campaigns" / "real") == tables(tmp_path / "local")


def test_workers_run_in_another_python_by_the_command_of_the_request(cluster: Cluster, user: User) -> None:
    """The wrapper runs Python as its child, as `conda run` does; signals of SLURM reach both."""
    wrapper = user.place / "container"
    wrapper.write_text(f'#!/bin/bash\n[ "$1 $2" = "exec image" ] || exit 1\nINSIDE=1 {sys.executable} "${{@:4}}"\n')
    wrapper.chmod(0o755)
    extra = {"job-name": "study", "comment": "a word", "export": "ALL,GIVEN=1", "mem_per_cpu": "600M"}
    python = f"{wrapper} exec image python"
    user.writes(
        "step_s=0.4, seeds=(0,)", f"python={python!r}, gpus=1, gpu_option='gpus', mem=None, workers=1, extra={extra}"
    )
    inside = '("SLURM_JOB_ID" in os.environ) <= {"INSIDE", "GIVEN"}.issubset(os.environ)'
    user.spec.write_text(f"import os\nassert {inside}\n{user.spec.read_text()}")
    record = user.queues()
    wait_for(user.training, "training", PATIENCE_S)
    shown = cluster.run("scontrol", "show", "job", f"{record.jobs[0]}_0")
    for words in (f"JobName=study-{record.submission}", "Comment=a word", "MinMemoryCPU=600M", "gres/gpu=1"):
        assert words in shown
    cluster.run("scancel", "--signal=USR2", f"{record.jobs[0]}_0")
    wait_until_over(cluster)
    assert record.environment is None
    assert {each.left for each in user.workers()} == {"time", "done"}
    assert user.same_as_local()


NODES = """
from ablate.grid import Grid
from ablate import Execution, LinearFunctions, ShiftGrid, Slurm, Training, Trial
from ablate.variants import gpt2, softmax

evaluation = ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=6, sequences=3, points=5)
grid = Grid(
    name="nodes",
    base=Trial(
        task=LinearFunctions(points=5, batch=8, evaluation=evaluation),
        model=gpt2(layers=1, heads=2, width=8, max_positions=16),
        operator=softmax(),
        training=Training(steps=600),
        execution=Execution(gpus=2, checkpoint_s=0.2),
    ),
    seeds=range(1),
)
environment = "export GLOO_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1"
slurm = Slurm(gpus=0, time="10m", signal_s=20, mem="900M", nodes=2, heartbeat_s=1.0, setup=(environment,))
"""


def test_a_trial_on_two_nodes_has_the_loss_of_one_and_outlives_the_ranks_of_a_node(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "nodes.py"
    spec.write_text(NODES)
    assert execute(["run", str(spec), "--on", "slurm", "--campaign", "two"]) == 0
    layout = Layout(tmp_path / "two")
    wait_for(lambda: list(layout.trials.rglob("checkpoint/*")), "a checkpoint", 200)
    (job,) = cluster.run("squeue", "-h", "-o", "%A").split()
    steps = {line for line in cluster.run("squeue", "-h", "--steps", "-o", "%i %N").splitlines() if " n2" in line}
    (step,) = [line.split()[0] for line in steps if line.split()[0].rpartition(".")[2].isdigit()]
    cluster.run("scancel", "--signal=KILL", step)
    wait_for(lambda: [trial_state(layout, key).state for key in layout.trial_keys()] == ["done"], "the trial", 300)
    (state,) = [trial_state(layout, key) for key in layout.trial_keys()]
    first, last = state.attempts
    assert first.end is None
    assert (last.start["place"]["job"], last.start["place"]["restarts"]) == (f"{job}_0", 1)
    assert last.start["resumed_from"] is not None
    assert execute(["run", str(spec), "--on", "inline", "--campaign", "one"]) == 0
    assert tables(tmp_path / "two") == tables(tmp_path / "one")
