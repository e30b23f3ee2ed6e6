"""Calls of SLURM's commands, bounded in time, and its notations for tasks and durations.

A question without an answer returns the problem: the campaign's files know more than the queue. A command that fails
raises `EnvironmentProblem`.
"""

import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from grid.errors import EnvironmentProblem

PATIENCE_S = 30.0
"""Time limit of a command; SLURM's own clients wait about as long."""

_UNKNOWN = "Invalid job id"


class TaskId(NamedTuple):
    """A task of an array, or a job that is no array (`task` is None)."""

    job: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.job) if self.task is None else f"{self.job}_{self.task}"


class Said(NamedTuple):
    """The output of a command, and in a sentence why it failed."""

    text: str
    problem: str | None
    unknown: bool = False
    """True if it failed because a job does not exist (any more)."""


def user() -> str:
    """Return this user's name."""
    return pwd.getpwuid(os.getuid()).pw_name


def ask(program: str, *arguments: str, patience_s: float = PATIENCE_S) -> Said:
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


def release(task: TaskId) -> bool:
    """Release a held task; return False if it does not exist."""
    return _run("scontrol", "release", str(task))


def cancel(tasks: Iterable[TaskId]) -> None:
    """Cancel tasks that wait or run; `TaskId(job)` is a whole array."""
    if names := shorthand(tasks):
        _run("scancel", *names)


def shorthand(tasks: Iterable[TaskId]) -> list[str]:
    """Return the names of tasks, one per job: `12`, `13_[0-4,7]`."""
    names = []
    ordered = sorted(set(tasks), key=lambda each: (each.job, each.task or 0))
    for job, group in groupby(ordered, key=lambda each: each.job):
        numbers = [each.task for each in group]
        known = [number for number in numbers if number is not None]
        names.append(str(job) if len(known) < len(numbers) else f"{job}_[{','.join(_ranges(known))}]")
    return names


def task_ids(name: str) -> Iterator[TaskId]:
    """Yield the tasks of `12`, `12_3`, `12_[3-5,9%2]` or `12_[0-8:4]`; none for other text."""
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
    """Convert `[days-]hours:minutes:seconds` or `minutes:seconds` to seconds; None for UNLIMITED and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _run(*command: str) -> bool:
    """Run a command; return False if its job does not exist."""
    said = ask(*command)
    if said.problem is not None and not said.unknown:
        raise EnvironmentProblem(f"{' '.join(command)[:80]} was not carried out: {said.problem}; try again")
    return said.problem is None


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Return consecutive numbers as ranges: 0-4, 7."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return [f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in ranges]
