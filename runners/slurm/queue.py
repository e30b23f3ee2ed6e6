"""What the scheduler says of our jobs and does with them: one call of one SLURM command per question.

Every command is optional and bounded in time. A question that finds no answer says why and is no error: the files of
the campaign know more than the queue. An order that cannot be carried out is an `EnvironmentProblem`.
"""

import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from grid.errors import EnvironmentProblem

PATIENCE_S = 30.0
"""How long a command may take; SLURM's own clients give up on a silent controller after about as long."""

_UNKNOWN = "Invalid job id"
_PENDING = "Job is pending execution"

_QUEUE = {
    "ArrayJobID": 20,
    "ArrayTaskID": 20,
    "State": 20,
    "Reason": 60,
    "NodeList": 60,
    "StartTime": 24,
    "TimeLimit": 16,
    "RestartCnt": 12,
    "Name": 100,
}
_ACCOUNT = "JobID,State,ExitCode,NodeList,Start,End"

Row = TypeVar("Row")


class Answer(NamedTuple, Generic[Row]):
    """What a question found, and why it found nothing when the scheduler did not answer."""

    rows: tuple[Row, ...]
    problem: str | None = None


class TaskId(NamedTuple):
    """A task of an array, or a job that is no array (`task` is None)."""

    job: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.job) if self.task is None else f"{self.job}_{self.task}"


class TaskState(NamedTuple):
    """A task that waits or runs, as squeue has it."""

    id: TaskId
    state: str
    """PENDING, RUNNING, COMPLETING, ... in full."""
    reason: str
    """Why it waits: Resources, Priority, BeginTime, JobHeldUser, ...; empty where there is none."""
    node: str
    """The nodes it was given; empty before it starts."""
    started: float | None
    """Seconds since the epoch; of a waiting task when the scheduler expects it to start, if it knows."""
    time_limit_s: int | None
    """None: unlimited, or not set yet."""
    restarts: int | None
    name: str


class TaskRecord(NamedTuple):
    """What accounting keeps of a task, after it has left the queue too; of several runs, the latest."""

    id: TaskId
    state: str
    """COMPLETED, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED, CANCELLED, REQUEUED, ..."""
    exit_code: int
    signal: int
    node: str
    started: float | None
    ended: float | None


class Said(NamedTuple):
    """What a command printed, and in one sentence why it failed."""

    text: str
    problem: str | None
    unknown: bool = False
    """Whether it failed because a job is not there (any more)."""


def user() -> str:
    """The user whose jobs these are, as SLURM names them."""
    return pwd.getpwuid(os.getuid()).pw_name


def ask(program: str, *arguments: str, patience_s: float = PATIENCE_S) -> Said:
    """Run one of SLURM's commands; times come as seconds since the epoch and lists of tasks uncut."""
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


def queued(jobs: Iterable[int]) -> Answer[TaskState]:
    """The tasks of `jobs` (of arrays, their job ids) that are in the queue; jobs that have left it have none."""
    wanted = sorted(set(jobs))
    return _queue("-j", ",".join(map(str, wanted))) if wanted else Answer(())


def queued_by_name(name: str) -> Answer[TaskState]:
    """This user's tasks in the queue whose --job-name is `name`: those of a submission of which no job id is known."""
    return _queue("--user", user(), "--name", name)


def accounted(jobs: Iterable[int]) -> Answer[TaskRecord]:
    """What accounting knows of the tasks of `jobs`; of one that waits, or starts just now, perhaps nothing yet."""
    wanted = sorted(set(jobs))
    if not wanted:
        return Answer(())
    said = ask("sacct", "-nPX", "-j", ",".join(map(str, wanted)), "--format", _ACCOUNT)
    return Answer((), said.problem) if said.problem else Answer(records(said.text))


def requeue(task: TaskId) -> bool:
    """Have a task run again, from the start of its script; False if the scheduler has forgotten it."""
    return _order("scontrol", "requeue", str(task), done=_PENDING)


def release(task: TaskId) -> bool:
    """Let a held task start; False if the scheduler has forgotten it."""
    return _order("scontrol", "release", str(task))


def cancel(tasks: Iterable[TaskId]) -> None:
    """End tasks that wait or run; those that have ended already are left alone. `TaskId(job)` is a whole array."""
    if names := shorthand(tasks):
        _order("scancel", *names)


def shorthand(tasks: Iterable[TaskId]) -> list[str]:
    """The names of tasks as the commands take them, one per job: `12`, `13_[0-4,7]`."""
    found = []
    for job, group in groupby(
        sorted(set(tasks), key=lambda each: (each.job, each.task or 0)), key=lambda each: each.job
    ):
        numbers = [each.task for each in group]
        known = [number for number in numbers if number is not None]
        found.append(str(job) if len(known) < len(numbers) else f"{job}_[{','.join(_runs(known))}]")
    return found


def states(text: str) -> tuple[TaskState, ...]:
    """The rows of squeue's answer; lines of another form, such as the name of a cluster, are none."""
    rows = (line.split("|", len(_QUEUE)) for line in text.splitlines())
    return tuple(_state([field.strip() for field in row]) for row in rows if len(row) >= len(_QUEUE) and _is_job(row))


def records(text: str) -> tuple[TaskRecord, ...]:
    """The rows of sacct's answer, one per task; a range of waiting tasks says nothing of one that has its own row."""
    single: dict[TaskId, TaskRecord] = {}
    ranged: dict[TaskId, TaskRecord] = {}
    for line in text.splitlines():
        name, *fields = line.split("|")
        if len(fields) != _ACCOUNT.count(","):
            continue
        found = single if "[" not in name else ranged
        for task in task_ids(name):
            found[task] = _record(task, fields)
    return tuple({**ranged, **single}.values())


def task_ids(name: str) -> Iterator[TaskId]:
    """The tasks that SLURM means by `12`, `12_3`, `12_[3-5,9%2]` or `12_[0-8:4]`; none by anything else."""
    match = re.fullmatch(r"(\d+)(?:_(\d+)|_\[([\d,:-]+)(?:%\d+)?\])?", name.strip())
    if match is None:
        return
    job, task, ranges = int(match[1]), match[2], match[3]
    if ranges is None:
        yield TaskId(job, None if task is None else int(task))
        return
    for part in ranges.split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        yield from (TaskId(job, each) for each in range(int(first), int(last or first) + 1, int(step or 1)))


def seconds(text: str) -> int | None:
    """SLURM's durations in seconds: [days-]hours:minutes:seconds, minutes:seconds; None for UNLIMITED and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _queue(*which: str) -> Answer[TaskState]:
    shown = ",".join(f"{field}:{width}|" for field, width in _QUEUE.items())
    said = ask("squeue", "-r", "-h", *which, "-O", shown)
    if said.problem and not said.unknown:
        return Answer((), said.problem)
    return Answer(states(said.text))


def _order(*command: str, done: str | None = None) -> bool:
    """Have a command carried out; False if its job is gone. An answer with the words `done` is as good as done."""
    said = ask(*command)
    if said.problem is None or (done and done in said.problem):
        return True
    if said.unknown:
        return False
    raise EnvironmentProblem(f"{' '.join(command)[:80]} was not carried out: {said.problem}; try again")


def _is_job(row: Sequence[str]) -> bool:
    return row[0].strip().isdigit()


def _state(row: Sequence[str]) -> TaskState:
    job, task, state, reason, node, started, limit, restarts, name, *_ = row
    return TaskState(
        id=TaskId(int(job), int(task) if task.isdigit() else None),
        state=state,
        reason=_said(reason),
        node=_said(node),
        started=_moment(started),
        time_limit_s=seconds(limit),
        restarts=int(restarts) if restarts.isdigit() else None,
        name=name,
    )


def _record(task: TaskId, fields: Sequence[str]) -> TaskRecord:
    state, exit_code, node, started, ended = (field.strip() for field in fields)
    code, _, number = exit_code.partition(":")
    return TaskRecord(
        id=task,
        state=state.split()[0] if state else "",  # "CANCELLED by 1000"
        exit_code=int(code) if code.isdigit() else 0,
        signal=int(number) if number.isdigit() else 0,
        node=_said(node),
        started=_moment(started),
        ended=_moment(ended),
    )


def _moment(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) > 0 else None


def _said(text: str) -> str:
    return "" if text in {"None", "N/A", "(null)", "None assigned"} else text


def _runs(numbers: Sequence[int]) -> list[str]:
    """Consecutive numbers as SLURM writes them: 0-4, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
