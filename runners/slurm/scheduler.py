"""Status of tasks from SLURM: which wait, which run, how others ended."""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, final

from grid.errors import EnvironmentProblem
from runners.slurm.queue import TaskId, ask, cancel, seconds, task_ids, user


class TaskStatus(NamedTuple):
    """The status of a task of a job array, or of a job."""

    state: Literal["pending", "held", "running", "ended"]
    """Held: it does not start before it is released."""
    words: str
    """Why it waits or how it ended, in the scheduler's words; empty while it runs."""
    node: str | None = None
    time_left_s: float | None = None


class QueueStatus(NamedTuple):
    """The answer of the scheduler."""

    tasks: Mapping[str, TaskStatus]
    """By name: `123_4`, or `123`."""
    asked: float | None
    """Time of the answer, in seconds since the epoch; None without one."""
    problem: str | None = None
    """Why there is no new answer."""
    named: Mapping[str, Sequence[int]] = {}
    """Jobs by name."""


class Scheduler(Protocol):
    """Answers questions about jobs."""

    def queued(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        """Return the waiting and running tasks of `jobs` and of the jobs called `names`."""

    def accounted(self, jobs: Collection[int]) -> QueueStatus:
        """Return how tasks of `jobs` ended, if the cluster has accounting."""


PATIENCE_S = 8.0
"""Time limit of a question; files alone could answer in part."""

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED"})
_HOLDS = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_HELD = re.compile(r"JobHeld|JobHold|(^|[ _])held(_|$)")
"""Matches reasons such as JobHeldUser, JobHeldAdmin, JobHoldMaxRequeue, launch_failed_requeued_held."""
_ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT"}
)

_QUEUE = {
    "ArrayJobID": 20,
    "ArrayTaskID": 20,
    "State": 20,
    "Reason": 60,
    "NodeList": 60,
    "StartTime": 24,
    "TimeLimit": 16,
    "Name": 100,
}
_ACCOUNT = "JobID,State,ExitCode,NodeList"


@final
class SlurmScheduler(Scheduler):
    """SLURM, through its commands; no answer is no error."""

    def queued(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        """Call squeue once, and once per name."""
        shown = ",".join(f"{field}:{width}|" for field, width in _QUEUE.items())
        questions: list[tuple[str, ...]] = [("-j", _join(jobs))] if jobs else []
        questions += [("--user", user(), "--name", name) for name in names]
        tasks: dict[str, TaskStatus] = {}
        named: dict[str, list[int]] = {}
        for which in questions:
            said = ask("squeue", "-r", "-h", *which, "-O", shown, patience_s=PATIENCE_S)
            if said.problem is not None and not said.unknown:
                return QueueStatus({}, None, said.problem)
            for task in queue_rows(said.text, time.time()):
                tasks[str(task.id)] = task.status
                if task.id.job not in named.setdefault(task.name, []):
                    named[task.name].append(task.id.job)
        return QueueStatus(tasks, time.time(), named=named)

    def accounted(self, jobs: Collection[int]) -> QueueStatus:
        """Call sacct once."""
        if not jobs:
            return QueueStatus({}, time.time())
        said = ask("sacct", "-nPX", "-j", _join(jobs), "--format", _ACCOUNT, patience_s=PATIENCE_S)
        if said.problem:
            return QueueStatus({}, None, said.problem)
        return QueueStatus(account_rows(said.text), time.time())

    def cancel(self, jobs: Sequence[int]) -> str | None:
        """Cancel jobs; return why it failed."""
        try:
            cancel(map(TaskId, jobs))
        except EnvironmentProblem as problem:
            return str(problem)
        return None


class QueueRow(NamedTuple):
    """A task in the queue and the name of its job."""

    id: TaskId
    name: str
    status: TaskStatus


def queue_rows(text: str, now: float) -> Iterator[QueueRow]:
    """Parse squeue's output; skip other lines, such as the name of a cluster."""
    for line in text.splitlines():
        row = [field.strip() for field in line.split("|", len(_QUEUE))]
        if len(row) >= len(_QUEUE) and row[0].isdigit():
            job, task, state, reason, node, started, limit, name, *_ = row
            status = _task_status(state, _text(reason), _text(node), _left_s(started, limit, now))
            yield QueueRow(TaskId(int(job), int(task) if task.isdigit() else None), name, status)


def account_rows(text: str) -> dict[str, TaskStatus]:
    """Parse sacct's output; a task's own row counts before a range of tasks."""
    single: dict[str, TaskStatus] = {}
    ranged: dict[str, TaskStatus] = {}
    for line in text.splitlines():
        name, *fields = line.split("|")
        if len(fields) == _ACCOUNT.count(","):
            state, code, node = (field.strip() for field in fields)
            status = TaskStatus("ended", f"{state.partition(' ')[0]}, exit {code}", _text(node) or None)
            target = single if "[" not in name else ranged
            target.update((str(task), status) for task in task_ids(name))
    return {**ranged, **single}


def _task_status(state: str, reason: str, node: str, left_s: float | None) -> TaskStatus:
    if state in _HOLDS or (state in _WAITING and _HELD.search(reason)):
        return TaskStatus("held", reason or state)
    if state in _WAITING:
        return TaskStatus("pending", reason)
    if state in _ENDED:
        return TaskStatus("ended", state, node or None)
    return TaskStatus("running", "", node or None, left_s)


def _left_s(started: str, limit: str, now: float) -> float | None:
    limit_s = seconds(limit)
    return max(0.0, limit_s - (now - int(started))) if limit_s is not None and started.isdigit() else None


def _join(jobs: Collection[int]) -> str:
    return ",".join(map(str, sorted(set(jobs))))


def _text(text: str) -> str:
    return "" if text in {"None", "N/A", "(null)", "None assigned"} else text
