"""SLURM's commands: questions about the queue and accounts, cancellations, and notations for tasks.

Another cluster is another `Backend`, not another `Scheduler`.

Each call is bounded in time. A question without an answer returns the problem: the campaign's files know more than the
queue.
"""

import os
import pwd
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, final

COMMAND_S = 30.0
"""Time limit of a command; SLURM's own clients wait about as long."""

_UNKNOWN = "Invalid job id"


class Said(NamedTuple):
    """The output of a command, and in a sentence why it failed."""

    text: str
    problem: str | None
    unknown: bool = False
    """True if it failed because a job does not exist (any more)."""


def user() -> str:
    """Return this user's name, or their number if they have none: SLURM takes both."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container
        return str(os.getuid())


def ask(program: str, *arguments: str, patience_s: float = COMMAND_S) -> Said:
    """Run a command; it prints times as seconds since the epoch and task lists in full."""
    ours = {name: value for name, value in os.environ.items() if not re.match("(SQUEUE|SACCT|SINFO|SCANCEL)_", name)}
    environment = {**ours, "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"}
    try:
        result = subprocess.run(
            [program, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=patience_s,
        )
    except FileNotFoundError:
        return Said("", f"{program} is not installed on this machine")
    except subprocess.TimeoutExpired:
        return Said("", f"{program} did not answer within {patience_s:.0f} s")
    except OSError as error:
        return Said("", f"{program} cannot be started: {error.strerror}")
    if result.returncode == 0:
        return Said(result.stdout, None)
    lines = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()
    return Said(result.stdout, f"{program} failed: {lines[-1].strip()}", unknown=_UNKNOWN in result.stderr)


def task_names(name: str) -> Iterator[str]:
    """Yield the tasks of `12`, `12_3`, `12_[3-5,9%2]` or `12_[0-8:4]`; none for other text."""
    match = re.fullmatch(r"(\d+)(?:_(\d+)|_\[([\d,:-]+)(?:%\d+)?\])?", name.strip())
    if match is None:
        return
    if match[3] is None:
        yield match[0]
        return
    for part in match[3].split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        yield from (f"{match[1]}_{each}" for each in range(int(first), int(last or first) + 1, int(step or 1)))


def seconds(text: str) -> int | None:
    """Convert `[days-]hours:minutes:seconds` or `minutes:seconds` to seconds; None for UNLIMITED and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


class TaskStatus(NamedTuple):
    """The status of a task of a job array, or of a job."""

    state: Literal["queued", "held", "running", "ended"]
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
    named: Mapping[str, Sequence[int]] = {}


class Scheduler(Protocol):
    """Answers questions about jobs."""

    def read_queue(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        """Return the waiting and running tasks of `jobs` and of the jobs called `names`."""

    def read_accounts(self, jobs: Collection[int]) -> QueueStatus:
        """Return how tasks of `jobs` ended, if the cluster has accounting."""

    def cancel(self, jobs: Sequence[int]) -> str | None:
        """Cancel jobs; return why it failed."""


@final
class RecentAnswers(Scheduler):
    """Answers of another scheduler that are at most `max_age_s` old; if it does not answer, the last one.

    A question about new jobs is asked at once: they were queued in between.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.max_age_s = 0.0
        self._answers: dict[str, tuple[float, frozenset[int | str], QueueStatus]] = {}

    def read_queue(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        return self._query("queue", {*jobs, *names}, lambda: self._scheduler.read_queue(jobs, names))

    def read_accounts(self, jobs: Collection[int]) -> QueueStatus:
        return self._query("accounts", {*jobs}, lambda: self._scheduler.read_accounts(jobs))

    def cancel(self, jobs: Sequence[int]) -> str | None:
        return self._scheduler.cancel(jobs)

    def _query(self, what: str, of: Collection[int | str], ask: Callable[[], QueueStatus]) -> QueueStatus:
        at, known, before = self._answers.get(what, (0.0, frozenset(), None))
        covered = before is not None and known.issuperset(of)
        if covered and before is not None and time.monotonic() < at + self.max_age_s:
            return before
        answer = ask()
        if answer.asked is None and covered and before is not None and before.asked:
            answer = before._replace(problem=answer.problem)
        self._answers[what] = time.monotonic(), frozenset(of), answer
        return answer


PATIENCE_S = 8.0
"""Time limit of a question; files alone could answer in part."""

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED"})
_HOLDS = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_HELD = re.compile(r"JobHeld|JobHold|(^|[ _])held(_|$)")
"""Matches reasons such as JobHeldUser, JobHeldAdmin, JobHoldMaxRequeue, launch_failed_requeued_held."""
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT"}
)
"""States of tasks that have ended."""

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
_NOTHING = ("", "None", "N/A", "(null)", "None assigned")
_ACCOUNT = "JobID,State,ExitCode,NodeList"


@final
class SlurmScheduler(Scheduler):
    """SLURM, through its commands; no answer is no error."""

    def read_queue(self, jobs: Collection[int], names: Collection[str]) -> QueueStatus:
        shown = ",".join(f"{field}:{width}|" for field, width in _QUEUE.items())
        questions: list[tuple[str, ...]] = [("-j", _join(jobs))] if jobs else []
        questions += [("--user", user(), "--name", name) for name in names]
        tasks: dict[str, TaskStatus] = {}
        named: dict[str, list[int]] = {}
        for which in questions:
            said = ask("squeue", "-r", "-h", *which, "-O", shown, patience_s=PATIENCE_S)
            if said.problem is not None and not said.unknown:
                return QueueStatus({}, None, said.problem)
            for task, name, status in queue_rows(said.text, time.time()):
                tasks[task] = status
                job = int(task.partition("_")[0])
                if job not in named.setdefault(name, []):
                    named[name].append(job)
        return QueueStatus(tasks, time.time(), named=named)

    def read_accounts(self, jobs: Collection[int]) -> QueueStatus:
        if not jobs:
            return QueueStatus({}, time.time())
        said = ask("sacct", "-nPX", "-j", _join(jobs), "--format", _ACCOUNT, patience_s=PATIENCE_S)
        if said.problem:
            return QueueStatus({}, None, said.problem)
        return QueueStatus(account_rows(said.text), time.time())

    def cancel(self, jobs: Sequence[int]) -> str | None:
        """Cancel jobs; return why it failed."""
        said = ask("scancel", *map(str, jobs)) if jobs else Said("", None)
        return None if said.unknown else said.problem


def queue_rows(text: str, now: float) -> Iterator[tuple[str, str, TaskStatus]]:
    """Parse squeue's output into tasks and names of jobs; skip other lines, such as the name of a cluster."""
    for line in text.splitlines():
        row = [field.strip() for field in line.split("|", len(_QUEUE))]
        if len(row) < len(_QUEUE) or not row[0].isdigit():
            continue
        job, task, state, reason, node, started, limit, name, *_ = ("" if text in _NOTHING else text for text in row)
        if state in _HOLDS or (state in _WAITING and _HELD.search(reason)):
            status = TaskStatus("held", reason or state)
        elif state in _WAITING:
            status = TaskStatus("queued", reason)
        elif state in ENDED:
            status = TaskStatus("ended", state, node or None)
        else:
            limit_s = seconds(limit) if started.isdigit() else None
            left_s = None if limit_s is None else max(0.0, limit_s - (now - int(started)))
            status = TaskStatus("running", "", node or None, left_s)
        yield f"{job}_{task}" if task.isdigit() else job, name, status


def account_rows(text: str) -> dict[str, TaskStatus]:
    """Parse sacct's output; a task's own row counts before a range of tasks."""
    single: dict[str, TaskStatus] = {}
    ranged: dict[str, TaskStatus] = {}
    for line in text.splitlines():
        name, *fields = line.split("|")
        if len(fields) == _ACCOUNT.count(","):
            state, code, node = (field.strip() for field in fields)
            status = TaskStatus("ended", f"{state.partition(' ')[0]}, exit {code}", None if node in _NOTHING else node)
            target = single if "[" not in name else ranged
            target.update((task, status) for task in task_names(name))
    return {**ranged, **single}


def _join(jobs: Collection[int]) -> str:
    return ",".join(map(str, sorted(set(jobs))))
