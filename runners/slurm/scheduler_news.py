"""What the scheduler says of jobs, as far as it can be asked: which tasks wait, which run, how others ended."""

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar, final

from grid.errors import EnvironmentProblem

if TYPE_CHECKING:
    from runners.slurm.queue import TaskState


class TaskNews(NamedTuple):
    """One task of a job array, or a job where arrays are off."""

    state: Literal["pending", "held", "running", "ended"]
    """Held: it waits, and does not start before somebody lets it go."""
    words: str
    """Why it waits or is held, or how it ended, in the scheduler's words; nothing while it runs."""
    node: str | None = None
    time_left_s: float | None = None


class News(NamedTuple):
    """What one question brought."""

    tasks: Mapping[str, TaskNews]
    """By name: `123_4`, or `123`."""
    asked: float | None
    """When the scheduler answered, in seconds since the epoch; None if it did not."""
    problem: str | None = None
    """Why it did not."""
    named: Mapping[str, Sequence[int]] = {}
    """Jobs by the name they were asked for."""


class Scheduler(Protocol):
    """Where the news is from."""

    def queued(self, jobs: Collection[int], names: Collection[str]) -> News:
        """Tasks of `jobs`, and of the jobs called so, that wait or run."""

    def accounted(self, jobs: Collection[int]) -> News:
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

_Found = TypeVar("_Found")


@final
class Slurm(Scheduler):
    """SLURM, through its commands; every question is bounded in time, and no answer is no error."""

    def queued(self, jobs: Collection[int], names: Collection[str]) -> News:
        """One squeue, and one more per name."""
        from runners.slurm.queue import Answer, TaskState, queued, queued_by_name

        answers: list[Answer[TaskState]] = []
        for ask in [partial(queued, jobs), *(partial(queued_by_name, name) for name in names)]:
            found, late = _within(PATIENCE_S, ask)
            if found is None or found.problem is not None:
                return News({}, None, late if found is None else found.problem)
            answers.append(found)
        rows = [row for answer in answers for row in answer.rows]
        named: dict[str, list[int]] = {}
        for row in rows:
            if row.id.job not in named.setdefault(row.name, []):
                named[row.name].append(row.id.job)
        now = time.time()
        return News({str(row.id): _news(row, now) for row in rows}, now, named=named)

    def accounted(self, jobs: Collection[int]) -> News:
        """One sacct."""
        from runners.slurm.queue import accounted

        found, late = _within(PATIENCE_S, partial(accounted, jobs))
        if found is None or found.problem is not None:
            return News({}, None, late if found is None else found.problem)
        tasks = {
            str(row.id): TaskNews("ended", f"{row.state}, exit {row.exit_code}:{row.signal}", row.node or None)
            for row in found.rows
        }
        return News(tasks, time.time())

    def cancel(self, jobs: Sequence[int]) -> str | None:
        """Take jobs out of the queue and end what runs of them; why that was not possible."""
        from runners.slurm.queue import TaskId, cancel

        try:
            cancel(map(TaskId, jobs))
        except EnvironmentProblem as problem:
            return str(problem)
        return None


def _news(row: "TaskState", now: float) -> TaskNews:
    if row.state in _ENDED:
        return TaskNews("ended", row.state, row.node or None)
    if row.state in _HOLDS or (row.state in _WAITING and _HELD.search(row.reason)):
        return TaskNews("held", row.reason or row.state)
    if row.state in _WAITING:
        return TaskNews("pending", row.reason)
    known = row.started is not None and row.time_limit_s is not None
    left = max(0.0, (row.time_limit_s or 0) - (now - (row.started or now))) if known else None
    return TaskNews("running", "", row.node or None, left)


def _within(seconds: float, ask: Callable[[], _Found]) -> tuple[_Found | None, str]:
    """The answer, or None and a reason if it takes longer; the question then ends by itself."""
    found: list[_Found] = []
    asking = threading.Thread(target=lambda: found.append(ask()), name="scheduler", daemon=True)
    asking.start()
    asking.join(seconds)
    return (found[0] if found else None), f"it did not answer within {seconds:.0f} s"
