"""A backend runs the workers of submissions, such as SLURM. Commands and monitoring know this protocol alone.

Backends are found by the entry points `ablate.backends`, each a class that is called without arguments. Its process
on a node runs `Local(n).run(job, rows, overseer)` of `ablate.runners.execution` over the manifest, as
`slurm/worker/supervisor.py` does. The command line gives it workers, `oom`, dry runs and waiting. It reads other
options from the files of the request, as `cluster_of` does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, final

from ablate.grid import Grid
from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.grid.plugins import plugins, use_plugin
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import Submission, Unreadable, submission_records
from ablate.runners.attempts.worker_records import CalledOff, WorkerRecord, used_hours
from ablate.runners.output import format_count, tell
from ablate.store.files.layout import Layout

if TYPE_CHECKING:
    from ablate.runners.planning.worklist import Worklist

Standing = Literal["queued", "held", "running", "ended", "lost", "unknown"]
"""State of a worker: the words of `State` where it is as with trials; held: only an administrator or its user lets it
go; ended: it left and said why."""

AT_WORK: tuple[Standing, ...] = ("running", "queued", "held", "unknown")


class WorkerStatus(NamedTuple):
    """The status of one worker of a submission."""

    submission: str
    resources: str
    number: int
    standing: Standing
    job: str | None
    node: str | None
    words: str
    """Why it waits, why it left, how it ended."""
    says: str | None
    restarts: int
    time_left_s: float | None
    seen: float
    """Time of the latest information, in seconds since the epoch."""
    ok: int
    failed: int
    output: str | None = None
    """Path of its log, if only the log says that the task was given up."""


@final
@dataclass(frozen=True)
class SubmissionStatus:
    """A submission to a cluster and its workers."""

    record: Submission
    cancelled: CalledOff
    workers: tuple[WorkerStatus, ...]
    records: tuple[WorkerRecord, ...]
    held: str | None = None
    """A sentence about its held workers and what to do."""

    def standing(self, resources: str) -> Literal["live", "held", "over", "unknown"]:
        """Return if a class has workers that will take rows; "held": once somebody lets them go."""
        if self.cancelled.all:
            return "over"
        standings = {worker.standing for worker in self.workers if worker.resources == resources}
        if standings & {"queued", "running"}:
            return "live"
        if "unknown" in standings:
            return "unknown"
        return "held" if "held" in standings else "over"

    @property
    def unit(self) -> str:
        """The budget's unit; without a budget `gpuh`, or `cpuh` for workers without GPUs."""
        if self.record.budget is not None:
            return str(self.record.budget["unit"])
        return "gpuh" if any(each.resources.get("gpus") for each in self.record.classes) else "cpuh"

    @cached_property
    def hours(self) -> float:
        """Hours that its workers have used, in `unit`."""
        return used_hours(self.records, self.unit)

    @property
    def spent(self) -> bool:
        """True if its budget is used up: its workers begin nothing more."""
        return self.record.budget is not None and self.hours >= float(self.record.budget["hours"])

    @property
    def jobs(self) -> list[str]:
        """Jobs and tasks that wait or run, or may."""
        return [worker.job for worker in self.workers if worker.job and worker.standing not in ("ended", "lost")]


class SubmissionQueue(Protocol):
    """Says how the workers of submissions are, and cancels them."""

    def list(
        self, layout: Layout, records: Sequence[Submission], max_age_s: float
    ) -> tuple[list[SubmissionStatus], list[str]]:
        """Return the status of its submissions to a campaign, and sentences about what is unknown.

        The scheduler's last answer may be `max_age_s` old; files are read anew.
        """

    def cancel(self, status: SubmissionStatus) -> str | None:
        """Take the workers of a submission out of the queue; return why that failed, and what does it."""


class Queued(NamedTuple):
    """The result of `Backend.submit`."""

    record: Submission | None
    """None: nothing was left to queue."""
    worklist: "Worklist"
    """The trials of the request, as they were before."""
    words: str
    """A sentence about what was queued, without a full stop."""
    earlier: tuple[str, ...] = ()
    """Earlier submissions that will train some of these trials."""


class Backend(SubmissionQueue, Protocol):
    """A queue that takes submissions."""

    def submit(self, request: RunRequest, grids: Sequence[Grid], notify: Callable[[str], None]) -> Queued:
        """Queue workers for the trials that are missing; `notify` takes remarks.

        Raises SpecError or EnvironmentProblem if it was refused, and then nothing is queued.
        """

    def describe(self, request: RunRequest, grids: Sequence[Grid]) -> str:
        """Describe what `submit` would queue, and write nothing; raises as `submit` does."""
        del request, grids
        raise SpecError(f"{type(self).__name__} cannot describe what it would queue; leave --dry-run out")


_SLURM = EntryPoint("slurm", "ablate.runners.backends.slurm.backend:SlurmBackend", "ablate.backends")
"""Also known where no metadata is installed, as in the snapshot of a submission."""


def backend_names() -> list[str]:
    """List the installed backends."""
    return sorted({*entry_points(group="ablate.backends").names, _SLURM.name})


def find_backend(name: str) -> Backend:
    """Load a backend. Raise EnvironmentProblem if none of that name is installed, or it cannot be used."""
    backends = {**plugins("ablate.backends", tell, name), _SLURM.name: _SLURM}
    if name not in backends:
        raise EnvironmentProblem(f"there is no backend {name!r} here; there are {', '.join(sorted(backends))}")
    backend: Backend = use_plugin(backends[name], lambda entry: entry.load()())
    return backend


@final
class Submissions:
    """The queued submissions of a campaign, each as its backend knows it; `known` backends are not looked up."""

    def __init__(self, known: Mapping[str, SubmissionQueue] | None = None) -> None:
        self._backends = dict[str, SubmissionQueue](known or {})

    def list(self, layout: Layout, max_age_s: float = 0.0) -> tuple[list[SubmissionStatus], list[str]]:
        """Return their status, oldest first, and sentences about what is unknown; `max_age_s` as of a backend."""
        records: dict[str, list[Submission]] = {}
        statuses, notes = list[SubmissionStatus](), list[str]()
        for record in submission_records(layout):
            if isinstance(record, Unreadable):
                notes.append(record.in_words())
            elif record.is_queued:
                records.setdefault(record.machine, []).append(record)
        for name, some in records.items():
            try:
                listed, said = self._backend(name).list(layout, some, max_age_s)
            except Exception as problem:  # noqa: BLE001  # by code of another package; the others are still shown
                words = str(problem) if isinstance(problem, AblateError) else f"backend {name!r}: {problem!r}"
                listed, said = [], [Unreadable(each.submission, words).in_words() for each in some]
            statuses += listed
            notes += said
        return sorted(statuses, key=lambda each: each.record.submission), notes

    def cancel(self, status: SubmissionStatus) -> str | None:
        """Let the backend of a submission cancel it."""
        return self._backend(status.record.machine).cancel(status)

    def _backend(self, name: str) -> SubmissionQueue:
        return self._backends.get(name) or self._backends.setdefault(name, find_backend(name))


def outdated_words(trials: int, state: str) -> str:
    """Say how many trials of a state left their grids."""
    verb = "is" if trials == 1 else "are"
    return f"{format_count(trials, f'{state} trial')} {verb} in no grid any more, since the plan changed"
