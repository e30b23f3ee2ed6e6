"""SLURM's commands: one call each, bounded in time; names of tasks as the commands take and print them.

Every command is optional. A question that finds no answer says why and is no error: the files of the campaign know more
than the queue. An order that cannot be carried out is an `EnvironmentProblem`.
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
"""How long a command may take; SLURM's own clients give up on a silent controller after about as long."""

_UNKNOWN = "Invalid job id"


class TaskId(NamedTuple):
    """A task of an array, or a job that is no array (`task` is None)."""

    job: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.job) if self.task is None else f"{self.job}_{self.task}"


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


def _order(*command: str) -> bool:
    """Have a command carried out; False if its job is gone."""
    said = ask(*command)
    if said.problem is None:
        return True
    if said.unknown:
        return False
    raise EnvironmentProblem(f"{' '.join(command)[:80]} was not carried out: {said.problem}; try again")


def _runs(numbers: Sequence[int]) -> list[str]:
    """Consecutive numbers as SLURM writes them: 0-4, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
