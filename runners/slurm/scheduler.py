"""What the scheduler says of jobs, as far as it can be asked: which tasks wait, which run, how others ended."""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, final

from grid.errors import EnvironmentProblem
from runners.slurm.queue import TaskId, ask, cancel, seconds, task_ids, user


class TaskStatus(NamedTuple):
    """One task of a job array, or a job where arrays are off."""

    state: Literal["pending", "held", "running", "ended"]
    """Held: it waits, and does not start before somebody lets it go."""
    words: str
    """Why it waits or is held, or how it ended, in the scheduler's words; nothing while it runs."""
    node: str | None = None
    time_left_s: float | None = None


class QueueStatus(NamedTuple):
    """What one question brought."""

    tasks: Mapping[str, TaskStatus]
    """By name: `123_4`, or `123`."""
    asked: float | None
    """When the scheduler answered, in seconds since the epoch; None if it did not."""
    problem: str | None = None
    """Why it did not."""
    named: Mapping[str, Sequence[int]] = {}
    """Jobs by the name they were asked for."""


class Scheduler(Protocol):
    """Where the news is from."""

    def queued(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        """Tasks of `jobs`, and of the jobs called so, that wait or run."""

    def accounted(self, jobs: Collection[int]) -> QueueStatus:
        """How tasks of `jobs` ended, where the cluster keeps accounts."""


PATIENCE_S = 8.0
"""For how long one question may hold up an answer that files could have given alone."""

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED"})
_HOLDS = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_HELD = re.compile(r"JobHeld|JobHold|(^|[ _])held(_|$)")
"""Of the reasons why a job waits: JobHeldUser, JobHeldAdmin, JobHoldMaxRequeue, launch_failed_requeued_held, ..."""
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
    """SLURM, through its commands; every question is bounded in time, and no answer is no error."""

    def queued(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        """One squeue, and one more per name."""
        shown = ",".join(f"{field}:{width}|" for field, width in _QUEUE.items())
        questions: list[tuple[str, ...]] = [("-j", _listed(jobs))] if jobs else []
        questions += [("--user", user(), "--name", name) for name in names]
        tasks: dict[str, TaskStatus] = {}
        named: dict[str, list[int]] = {}
        for which in questions:
            said = ask("squeue", "-r", "-h", *which, "-O", shown, patience_s=PATIENCE_S)
            if said.problem is not None and not said.unknown:
                return QueueStatus({}, None, said.problem)
            for task in queue_rows(said.text, time.time()):
                tasks[str(task.id)] = task.news
                if task.id.job not in named.setdefault(task.name, []):
                    named[task.name].append(task.id.job)
        return QueueStatus(tasks, time.time(), named=named)

    def accounted(self, jobs: Collection[int]) -> QueueStatus:
        """One sacct."""
        if not jobs:
            return QueueStatus({}, time.time())
        said = ask("sacct", "-nPX", "-j", _listed(jobs), "--format", _ACCOUNT, patience_s=PATIENCE_S)
        return (
            QueueStatus({}, None, said.problem) if said.problem else QueueStatus(account_rows(said.text), time.time())
        )

    def cancel(self, jobs: Sequence[int]) -> str | None:
        """Take jobs out of the queue and end what runs of them; why that was not possible."""
        try:
            cancel(map(TaskId, jobs))
        except EnvironmentProblem as problem:
            return str(problem)
        return None


class QueueRow(NamedTuple):
    """A task in the queue."""

    id: TaskId
    name: str
    """Of its job."""
    news: TaskStatus


def queue_rows(text: str, now: float) -> Iterator[QueueRow]:
    """The rows of squeue's answer; lines of another form, such as the name of a cluster, are none."""
    for line in text.splitlines():
        row = [field.strip() for field in line.split("|", len(_QUEUE))]
        if len(row) >= len(_QUEUE) and row[0].isdigit():
            job, task, state, reason, node, started, limit, name, *_ = row
            waits = _waiting(state, _said(reason))
            news = waits or _started(state, _said(node), _left_s(started, limit, now))
            yield QueueRow(TaskId(int(job), int(task) if task.isdigit() else None), name, news)


def account_rows(text: str) -> dict[str, TaskStatus]:
    """The tasks of sacct's answer; a range of waiting tasks says nothing of one that has its own row."""
    single: dict[str, TaskStatus] = {}
    ranged: dict[str, TaskStatus] = {}
    for line in text.splitlines():
        name, *fields = line.split("|")
        if len(fields) == _ACCOUNT.count(","):
            state, code, node = (field.strip() for field in fields)
            ended = TaskStatus("ended", f"{state.partition(' ')[0]}, exit {code}", _said(node) or None)
            found = single if "[" not in name else ranged
            found.update((str(task), ended) for task in task_ids(name))
    return {**ranged, **single}


def _waiting(state: str, reason: str) -> TaskStatus | None:
    if state in _HOLDS or (state in _WAITING and _HELD.search(reason)):
        return TaskStatus("held", reason or state)
    return TaskStatus("pending", reason) if state in _WAITING else None


def _started(state: str, node: str, left_s: float | None) -> TaskStatus:
    if state in _ENDED:
        return TaskStatus("ended", state, node or None)
    return TaskStatus("running", "", node or None, left_s)


def _left_s(started: str, limit: str, now: float) -> float | None:
    limit_s = seconds(limit)
    return max(0.0, limit_s - (now - int(started))) if limit_s is not None and started.isdigit() else None


def _listed(jobs: Collection[int]) -> str:
    return ",".join(map(str, sorted(set(jobs))))


def _said(text: str) -> str:
    return "" if text in {"None", "N/A", "(null)", "None assigned"} else text
