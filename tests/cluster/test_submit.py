"""Submitted to a real cluster: trained once, whatever becomes of the workers; refusals as SLURM really words them."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster, wait_for
from cluster.tasks import Task, ended, in_queue
from toy_campaign import run_quietly, tables
from toy_training import ENTRY

from grid import Grid
from grid.errors import EnvironmentProblem, SpecError
from runners.cli.app import execute
from runners.execution.run import RunResult
from runners.provenance.specfile import load_spec_file
from runners.slurm.follow import Following
from runners.slurm.scheduler import SlurmScheduler as Scheduler
from runners.slurm.spec import Slurm
from runners.slurm.submissions import read_submission_status
from runners.slurm.submit.submit import Drafter, SubmitOptions, SubmittedJobs, submit
from runners.slurm.worker_records import WorkerRecord, read_workers, worker_log
from store.files.layout import Layout
from store.files.trial_status import trial_state

TESTS = Path(__file__).parent.parent
CPU = Slurm(gpus=0, cpus=1, time="30m", workers=2, mem="500M", signal_s=20, heartbeat_s=1.0)
LISTEN = "(while [ ! -e {place}/order ]; do sleep 0.1; done; kill $(cat {place}/order); rm {place}/order) &"
SPEC = "from toy_campaign import toy_grid\ngrid = toy_grid({arguments})\n"


@pytest.fixture(autouse=True)
def _toys_are_found_on_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("ABLATE_TREES", str(tmp_path / "trees"))


class Run:
    """A campaign of toys and what was submitted of it."""

    def __init__(
        self, place: Path, arguments: str = "", request: Slurm = CPU, header: str = "", **options: Any
    ) -> None:
        place.mkdir(exist_ok=True)
        self.place = place
        self.root = place / "campaign"
        spec = place / "toys.py"
        spec.write_text(header + SPEC.format(arguments=arguments))
        self.grid: Grid = load_spec_file(spec)["toy"]
        chosen = SubmitOptions(entry=ENTRY, files=(spec,), **options)
        self.drafter = Drafter(self.root, [self.grid], request, Scheduler(), chosen)
        self.layout = Layout(self.root.resolve())
        self.queued: SubmittedJobs | None = None

    def submit(self) -> "Run":
        self.queued = submit(self.drafter, lambda _: None)
        return self

    @property
    def record(self) -> Any:
        assert self.queued is not None
        assert self.queued.record is not None
        return self.queued.record

    @property
    def job(self) -> int:
        return int(self.record.jobs[0])

    def tasks(self) -> list[Task]:
        found = in_queue(self.record.jobs)
        assert found is not None
        return found

    def workers(self) -> list[WorkerRecord]:
        return read_workers(self.layout, self.record.submission)

    def training(self) -> bool:
        """Whether a worker is in the middle of a trial."""
        return any(path.stat().st_size > 0 for path in self.layout.trials.glob("*/*/*/heartbeat"))

    def send(self, sent: str) -> None:
        """Send a signal to the one worker alone, from its node; its set-up is `LISTEN`."""
        wait_for(self.workers, "the record of a worker")
        (self.place / "order.tmp").write_text(f"-{sent} {self.workers()[-1].pid}")
        (self.place / "order.tmp").rename(self.place / "order")

    def wait(self) -> RunResult:
        assert self.queued is not None
        following = Following(self.drafter.survey, self.queued.draft.wanted, [self.record.submission], Scheduler())
        following.until_over(look_every_s=0.3, ask_every_s=1.0)
        return following.result(self.drafter.survey, self.record.submission)

    def over(self) -> bool:
        return not self.tasks()

    def said(self, task: int = 0) -> str:
        return worker_log(self.layout, self.record.submission, f"{self.job}_{task}").read_text()

    def same_as_local(self) -> bool:
        """Whether the campaign says what a run on this machine says; that one takes no time for a step."""
        base = self.grid.base
        grid = replace(self.grid, base=base.changed(execution=base.execution.changed(step_s=0.0)))
        run_quietly(self.place / "local", grid)
        mine, local = tables(self.root), tables(self.place / "local")
        mine.pop("trial"), local.pop("trial")  # specs say where they ran
        return mine == local


def test_a_grid_is_trained_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(tmp_path, request=CPU.changed(max_parallel=1, partition="short,debug", time="5m")).submit()
    assert run.record.jobs == [run.job]
    shown = cluster.run("scontrol", "show", "job", str(run.job))
    assert "ArrayTaskThrottle=1" in shown
    assert "Partition=short,debug" in shown
    result = run.wait()
    assert (result.ok, result.failed, result.stopped) == (6, 0, 0), run.said()
    wait_for(run.over, "the workers to leave")
    assert {each.left for each in run.workers()} == {"done"}
    assert run.same_as_local()


def standings(run: Run) -> set[str]:
    submissions, notes = read_submission_status(run.layout, Scheduler())
    assert notes == []
    return {worker.standing for status in submissions for worker in status.workers}


def test_trials_of_jobs_that_are_held_are_queued_anew_and_nobody_waits_for_those(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, request=CPU.changed(extra={"begin": "now+1hour"})).submit()
    assert standings(run) == {"pending"}
    cluster.run("scontrol", "hold", str(run.job))
    assert standings(run) == {"held"}
    assert run.wait().stopped == 6
    assert f"held (JobHeldAdmin); `scontrol release {run.job}` lets them go" in capsys.readouterr().err
    again = Run(tmp_path).submit()
    assert again.wait().ok == 6
    cluster.run("scancel", str(run.job))
    wait_for(run.over, "the held jobs to go")


def test_what_was_submitted_is_trained_whatever_is_edited_afterwards(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    try:
        run = Run(tmp_path).submit()
        (tmp_path / "toys.py").write_text("raise RuntimeError('edited')\n")
    finally:
        cluster.run("scontrol", "update", "PartitionName=debug", "State=UP")
    assert run.wait().ok == 6


def test_failed_trials_make_the_workers_fail_and_are_not_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(tmp_path, "fates=['ok', 'raises']", CPU.changed(workers=1)).submit()
    result = run.wait()
    assert (result.ok, result.failed) == (6, 6)
    wait_for(run.over, "the workers to leave")
    wait_for(lambda: list(ended(run.job).values()) == ["FAILED 86:0"], "its account")


def test_however_workers_end_their_trials_are_trained_to_the_end(cluster: Cluster, tmp_path: Path) -> None:
    """Run four workers. One is told to leave and one is killed. One must leave while the controller is away. The
    trials of one are longer than its time limit.
    """
    one = CPU.changed(workers=1)
    limited = one.changed(time="1m", per_gpu=2)
    listening = {name: one.changed(setup=(LISTEN.format(place=tmp_path / name),)) for name in ("killed", "cut_off")}
    limit = Run(tmp_path / "limit", "step_s=0.5, steps=110, seeds=(0,)", limited).submit()
    told = Run(tmp_path / "told", "step_s=0.4, seeds=(0,)", one).submit()
    wait_for(told.training, "training")
    cluster.run("scancel", "--signal=TERM", f"{told.job}_0")
    killed = Run(tmp_path / "killed", "step_s=0.4, seeds=(0,), checkpoint_s=1.0", listening["killed"]).submit()
    wait_for(killed.training, "training")
    killed.send("KILL")
    # SLURM enforces no time limit while its controller is away, so `limit` must reach its own before.
    wait_for(lambda: all("queued again" in each.said() for each in (told, killed, limit)), "three to be queued again")
    cut_off = Run(tmp_path / "cut_off", "step_s=0.4, steps=40, seeds=(0,)", listening["cut_off"]).submit()
    wait_for(cut_off.training, "training")
    with away(cluster):
        cut_off.send("USR2")
        with pytest.raises(EnvironmentProblem, match="wait for its controller"):
            Run(tmp_path / "new")
        wait_for(lambda: "the controller does not answer" in cut_off.said(), "the question to fail")
    assert not (tmp_path / "new" / "campaign").exists()
    for run in (told, killed, cut_off, limit):
        result = run.wait()
        assert (result.ok, result.failed, result.stopped) == (2, 0, 0), run.said()
        assert run.same_as_local()
    assert "queued again: its time is over" in told.said()
    assert [each.restarts for each in told.workers()] == [0, 1]
    assert "the worker died with status 137" in killed.said()
    assert any(each.left in ("time", "signal") for each in limit.workers())
    assert max(each.restarts for each in limit.workers()) >= 1


def test_a_cancelled_worker_stays_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(tmp_path, "step_s=0.2, steps=1000, seeds=(0,)", CPU.changed(workers=1)).submit()
    wait_for(run.training, "training")
    cluster.run("scancel", str(run.job))
    wait_for(run.over, "the job to end")
    assert "not queued again" in run.said()
    wait_for(lambda: [each.split()[0] for each in ended(run.job).values()] == ["CANCELLED"], "its account")
    result = run.wait()
    assert (result.ok, result.stopped) == (0, 2)


class away:  # noqa: N801
    """The controller is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> None:
        self._cluster._machines.pop("slurmctld").end()

    def __exit__(self, *_: object) -> None:
        self._cluster._start_controller()
        wait_for(lambda: self._cluster.state("n1") in {"idle", "mix", "alloc"}, "the controller")


def test_a_node_that_refuses_is_left_for_another(cluster: Cluster, tmp_path: Path) -> None:
    setup = ("[ $SLURMD_NODENAME != n1 ] || { echo 'no module here' >&2; exit 3; }",)
    run = Run(tmp_path, "seeds=(0,)", CPU.changed(workers=1, setup=setup)).submit()
    assert run.wait().ok == 2
    assert {each.node for each in run.workers()} == {"n2"}
    assert "no module here" in run.said()
    assert "kept away from it" in run.said()


@pytest.fixture(autouse=True)
def _logs_of_a_failure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Add the logs of the workers to the report of a test."""
    yield
    for path in sorted(tmp_path.glob("**/submissions/*/logs/*")):
        print(f"{path.name}:\n{path.read_text()[-3000:]}")  # noqa: T201


REFUSED = {
    "account": ("moon", "the account is not one you may use there"),
    "qos": ("moon", "the qos is not one you may use"),
    "constraint": ("moon", "no node has what --constraint asks for"),
    "exclude": ("moon", "--exclude names a node that does not exist"),
    "extra": ({"reservation": "moon"}, "the reservation does not exist"),
    "setup": (("if then",), "no shell that bash can read .syntax error near unexpected token `then'"),
    "gpus": (3, "has 2 GPUs, and a worker is to have 3"),
    "partition": ("moon", "partitions here: debug, preempt, short, urgent"),
}


def test_what_the_cluster_does_not_have_is_said_and_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    requests = [CPU.changed(**{field: value}) for field, (value, _) in REFUSED.items()]
    sentences = [words for _, words in REFUSED.values()]
    requests.append(CPU.changed(exclude="n[1-2]"))
    sentences.append(r"--exclude n\[1-2\] leaves no node to train on; exclude fewer \(sbatch: ")
    requests.append(CPU.changed(extra={"moon": "full"}))
    sentences.append("names an option that sbatch does not have")
    for request, words in zip(requests, sentences, strict=True):
        run = Run(tmp_path, "", request)
        with pytest.raises(SpecError, match=words):
            run.submit()
        assert not run.root.exists()
    assert cluster.run("squeue", "-h") == ""


def test_an_account_that_takes_too_few_jobs_refuses_and_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(tmp_path, "seeds=range(5)", CPU.changed(workers=10, account="small"))
    with pytest.raises(EnvironmentProblem, match="you have as many jobs in the queue as you may"):
        run.submit()
    assert cluster.run("squeue", "-h") == ""
    assert run.layout.submission_ids() == []


REAL = """
from grid import Grid, over
from runners import LinearFunctions, ShiftGrid, Slurm, Training, Trial
from variants import gpt2, softmax, ssa

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


def test_workers_run_in_another_python_by_the_command_of_the_request(cluster: Cluster, tmp_path: Path) -> None:
    """The wrapper runs Python as its child, as `conda run` does; signals of SLURM reach both."""
    wrapper = tmp_path / "container"
    wrapper.write_text(f'#!/bin/bash\n[ "$1 $2" = "exec image" ] || exit 1\nINSIDE=1 {sys.executable} "${{@:4}}"\n')
    wrapper.chmod(0o755)
    extra = {"job-name": "study", "comment": "a word", "export": "ALL,GIVEN=1", "mem_per_cpu": "600M"}
    request = CPU.changed(
        python=f"{wrapper} exec image python", gpus=1, gpu_option="gpus", mem=None, workers=1, extra=extra
    )
    inside = '("SLURM_JOB_ID" in os.environ) <= {"INSIDE", "GIVEN"}.issubset(os.environ)'
    run = Run(tmp_path, "step_s=0.4, seeds=(0,)", request, header=f"import os\nassert {inside}\n").submit()
    wait_for(run.training, "training")
    shown = cluster.run("scontrol", "show", "job", f"{run.job}_0")
    assert f"JobName=study-{run.record.submission}" in shown
    assert "Comment=a word" in shown
    assert "MinMemoryCPU=600M" in shown
    assert "gres/gpu=1" in shown
    cluster.run("scancel", "--signal=USR2", f"{run.job}_0")
    assert run.wait().ok == 2
    wait_for(run.over, "the worker to leave")
    assert run.record.environment is None
    assert {each.left for each in run.workers()} == {"time", "done"}
    assert run.same_as_local()


NODES = """
from grid import Grid
from runners import Execution, LinearFunctions, ShiftGrid, Slurm, Training, Trial
from variants import gpt2, softmax

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
    wait_for(lambda: [trial_state(layout, key).status for key in layout.trial_keys()] == ["ok"], "the trial", 300)
    (state,) = [trial_state(layout, key) for key in layout.trial_keys()]
    first, last = state.attempts
    assert first.end is None
    assert (last.start["place"]["job"], last.start["place"]["restarts"]) == (f"{job}_0", 1)
    assert last.start["resumed_from"] is not None
    assert execute(["run", str(spec), "--on", "inline", "--campaign", "one"]) == 0
    assert tables(tmp_path / "two") == tables(tmp_path / "one")
