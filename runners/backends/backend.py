"""A backend runs the workers of submissions, such as SLURM. Commands and monitoring know this protocol alone.

Backends are found by the entry points `ablate.backends`, each a class that is called without arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Literal, NamedTuple, Protocol, final

from ablate.grid import Grid
from ablate.grid.errors import SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import Submission
from ablate.runners.attempts.worker_records import CalledOff, WorkerRecord, used_hours
from ablate.runners.output import format_count
from ablate.store.files.layout import Layout

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


class Submissions(Protocol):
    """Submissions to a backend, or to several, as monitoring sees them."""

    def list(self, layout: Layout, max_age_s: float = 0.0) -> tuple[Sequence[SubmissionStatus], Sequence[str]]:
        """Return the submissions to a campaign, oldest first, and sentences about what is unknown.

        The scheduler's last answer may be `max_age_s` old; files are read anew.
        """

    def cancel(self, found: SubmissionStatus) -> str | None:
        """Take the workers of a submission out of the queue; return why that failed, and what does it."""


class Backend(Submissions, Protocol):
    """Queues submissions, too; only its own code on a node knows which worker that is, and how it is queued again."""

    def submit(self, request: RunRequest, grids: Sequence[Grid], notify: Callable[[str], None]) -> Submission | None:
        """Queue workers for the trials that are missing; return the record, or None if nothing is left.

        Raises SpecError or EnvironmentProblem if it was refused, and then nothing is queued.
        """


_OURS = {"slurm": "ablate.runners.backends.slurm.backend:SlurmBackend"}
"""Also known where no metadata is installed, as in the snapshot of a submission."""


def backend_names() -> list[str]:
    """List the installed backends."""
    return sorted({*_OURS, *entry_points(group="ablate.backends").names})


def find_backend(name: str) -> Backend:
    """Load a backend. Raise SpecError if there is none of that name."""
    if name not in backend_names():
        raise SpecError(f"there is no backend {name!r}; there are {', '.join(backend_names())}")
    found = {each.name: each for each in entry_points(group="ablate.backends")}
    backend: Callable[[], Backend] = found[name].load() if name in found else resolve_name(_OURS[name])
    return backend()


@final
class Installed(Submissions):
    """Submissions to all installed backends."""

    def __init__(self) -> None:
        self._backends = {name: find_backend(name) for name in backend_names()}

    def list(self, layout: Layout, max_age_s: float = 0.0) -> "tuple[Sequence[SubmissionStatus], Sequence[str]]":
        """Return the submissions of all backends, oldest first."""
        found = [each.list(layout, max_age_s) for each in self._backends.values()]
        statuses = sorted((each for some, _ in found for each in some), key=lambda each: each.record.submission)
        return statuses, [note for _, notes in found for note in notes]

    def cancel(self, found: SubmissionStatus) -> str | None:
        """Let the backend of a submission cancel it."""
        return self._backends[found.record.machine].cancel(found)


def outdated_words(trials: int, state: str) -> str:
    """Say how many trials of a state left their grids."""
    verb = "is" if trials == 1 else "are"
    return f"{format_count(trials, f'{state} trial')} {verb} in no grid any more, since the plan changed"
