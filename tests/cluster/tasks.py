"""Tasks of a cluster's queue and accounts as SLURM itself prints them, and one more life for a task."""

from collections.abc import Iterable
from typing import NamedTuple

from ablate.runners.backends.slurm.scheduler import ask, task_names

_SHOWN = ("ArrayJobID", "ArrayTaskID", "State", "Reason", "NodeList", "RestartCnt")


class Task(NamedTuple):
    """A task that waits or runs."""

    name: str
    state: str
    reason: str
    node: str
    restarts: int


def in_queue(jobs: Iterable[int]) -> list[Task] | None:
    """The tasks of `jobs` that wait or run; None where the controller does not answer."""
    listed = ",".join(map(str, jobs))
    if not listed:
        return []
    said = ask("squeue", "-r", "-h", "-j", listed, "-O", ",".join(f"{field}:60|" for field in _SHOWN))
    if said.problem is not None and not said.unknown:
        return None
    return [_task([field.strip() for field in line.split("|")]) for line in said.text.splitlines()]


def _task(row: list[str]) -> Task:
    job, task, state, reason, node, restarts, *_ = row
    return Task(
        f"{job}_{task}" if task.isdigit() else job, state, "" if reason == "None" else reason, node, int(restarts)
    )


def ended(job: int) -> dict[str, str]:
    """State and exit code of the tasks of a job by the accounts: `FAILED 86:0`."""
    said = ask("sacct", "-nPX", "-j", str(job), "--format", "JobID,State,ExitCode")
    assert said.problem is None, said.problem
    rows = (line.split("|") for line in said.text.splitlines())
    return {task: f"{state.split()[0]} {code}" for name, state, code in rows for task in task_names(name)}


def requeue(task: str) -> bool:
    """Have a task run again; False if the scheduler has forgotten it."""
    said = ask("scontrol", "requeue", task)
    assert said.problem is None or said.unknown, said.problem
    return said.problem is None
