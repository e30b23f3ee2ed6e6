"""Worker tasks as plain processes: submissions without a scheduler, and nodes under host names of their own."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from toy_training import ToyTrial
from warm import Warm

from ablate.grid import Grid
from ablate.runners.attempts.experiments import preload_of
from ablate.runners.attempts.manifest import submission_id, trial_lines, write_grid, write_submission
from ablate.runners.attempts.submission_record import Array, ResourceClass, Submission, write_submission_record
from ablate.runners.attempts.worker_records import WorkerRecord, read_workers
from ablate.runners.backends.slurm.spec import Resources
from ablate.runners.backends.slurm.worker.task_environment import TimeBudget
from ablate.runners.child_lifetime import shield_from_signals
from ablate.runners.processes.training_context import TrainingContext, TrainingResult
from ablate.store.files.layout import Layout

TESTS = Path(__file__).resolve().parent
HEARTBEAT_S = 0.25
CPU = Resources(partition=None, time=60, gpus=0, gpu_type=None, cpus=1, mem=None, per_gpu=1)


_NODE = """
import os, runpy
from ablate.runners.backends.slurm.worker import rows, supervisor
from slurm_node import set_host_name, watch_time

rows._FIRST_WAIT_S, rows._LONGEST_WAIT_S = 0.02, 0.5  # as much shorter as the time between signs of life
supervisor._MOST_DELAY_S = 1.0
watch_time(supervisor.TimeBudget)
set_host_name(os.environ["SLURMD_NODENAME"])
runpy.run_module("ablate.runners.backends.slurm.node", run_name="__main__", alter_sys=True)
"""
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUTS = 0x04000000


def set_host_name(host: str) -> None:
    """Give the process that is about to begin a host name of its own; a shell would unblock its signals."""
    if _LIBC.unshare(_CLONE_NEWUTS) == 0:
        socket.sethostname(host)


def watch_time(budget: type[TimeBudget]) -> None:
    """With TIME in the environment, time is enough until TIME/over exists; TIME/looks has a letter for each look."""
    if "TIME" in os.environ:
        place = Path(os.environ["TIME"])

        def is_enough(_: TimeBudget) -> bool:
            enough = not (place / "over").exists()
            with (place / "looks").open("a") as looks:
                looks.write("x")
            return enough

        budget.is_enough = is_enough  # type: ignore[method-assign]


@cache
def own_host_names() -> bool:
    """Whether processes can be given a host name of their own here."""
    program = [sys.executable, "-c", "import socket; print(socket.gethostname())"]
    told = subprocess.run(program, preexec_fn=lambda: set_host_name("n0"), capture_output=True, text=True, check=True)
    return told.stdout.strip() == "n0"


@dataclass
class Sent:
    """A submission of one class."""

    root: Path
    submission: str
    workers: int
    restarts: dict[int, int] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    def records(self) -> list[WorkerRecord]:
        return read_workers(self.layout, self.submission)

    def start(
        self, worker: int = 0, *, host: str | None = None, fresh: bool = False, **environ: str
    ) -> "subprocess.Popen[str]":
        """The task of `worker` in its next life, in a process group of its own; `fresh`: in a new interpreter."""
        life = self.restarts[worker] = self.restarts.get(worker, -1) + 1
        slurm = {
            "SLURM_JOB_ID": str(100 + worker),
            "SLURM_ARRAY_JOB_ID": "100",
            "SLURM_ARRAY_TASK_ID": str(worker),
            "SLURM_CPUS_PER_TASK": "4",
            "SLURMD_NODENAME": host or f"n{worker}",
            **({"SLURM_RESTART_COUNT": str(life)} if life else {}),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "CUDA"))}
        paths = {"PYTHONPATH": f"{TESTS.parent}/src:{TESTS}", "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
        options = {
            "env": {**kept, **paths, **slurm, **environ},
            "start_new_session": True,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        place = [str(self.root), self.submission, "0", "0"]
        with shield_from_signals():
            if not fresh:
                return Warm([sys.executable, "-c", _NODE, *place], **options)
            return subprocess.Popen(
                [sys.executable, "-u", "-m", "ablate.runners.backends.slurm.node", *place],
                preexec_fn=lambda: set_host_name(slurm["SLURMD_NODENAME"]),
                **options,
            )


def send(root: Path, grid: Grid, *, workers: int = 1, **about: Any) -> Sent:
    """Write a submission of all trials of `grid`; `about` replaces parts of it: job, resources, slurm, ..."""
    layout = Layout(root)
    lines = list(trial_lines(grid))
    write_grid(layout, grid, lines)
    name = submission_id()
    write_submission(layout, name, lines)
    job = {"preload": preload_of([grid]), "files": [], "heartbeat_s": HEARTBEAT_S, **about.pop("job", {})}
    resources = {**asdict(CPU), **about.pop("resources", {})}
    slurm = {"signal_s": 60, **about.pop("slurm", {})}
    found = ResourceClass("all", (0, len(lines)), resources, workers, (Array(0, workers, 100),))
    record = Submission(name, "slurm", time.time(), job, slurm=slurm, classes=(found,), **about)
    write_submission_record(layout, record)
    return Sent(root, name, workers)


def end_of(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a task; killed with its group if the test ends before."""
    try:
        out, err = process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, out, err


def to_the_end(sent: Sent, worker: int = 0, lives: int = 40, **environ: str) -> list[int]:
    """Start the task again and again, as the scheduler does, until nothing is left for it; its exit statuses."""
    statuses: list[int] = []
    while not statuses or statuses[-1] not in (0, 86):
        assert len(statuses) < lives, statuses
        status, out, err = end_of(sent.start(worker, **environ))
        assert status in (0, 85, 86), f"{statuses}, then {status}\n{out}\n{err}"
        statuses.append(status)
    return statuses


def see(trial: ToyTrial, surroundings: TrainingContext) -> TrainingResult:
    """Logs the device that its process sees, instead of training."""
    surroundings.metrics(1, {"device": float(os.environ["CUDA_VISIBLE_DEVICES"])})
    time.sleep(trial.execution.step_s)
    return TrainingResult(1, stopped=False, parameters=7, operator_parameters=2, train_s=0.1, evaluate_s=0.01)


def plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Tables without what the spec says of its execution, which is not part of a result."""
    return {**found, "trial": [(key, None, *rest) for key, _, *rest in found["trial"]]}
