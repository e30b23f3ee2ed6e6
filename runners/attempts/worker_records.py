"""Files of workers on a cluster: their records, and the cancellations that they watch.

Each worker has one record file, written at the start of a life, every minute and at its end.
"""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.runners.attempts.submission_record import Unreadable, submission_records
from ablate.runners.output import format_count
from ablate.store.files.atomic import is_temporary, read_json, write_json
from ablate.store.files.layout import FILE_SCHEMA, Layout

Left = Literal["done", "time", "signal", "budget", "cancelled", "refused", "error", "late", "full"]

GAVE_UP: tuple[Left, ...] = ("refused", "error", "late", "full")
"""Ends of workers that could not train; "full" passes when the disk has space again."""

FOR_GOOD: tuple[Left, ...] = ("done", "budget", "cancelled", "late")
"""Ends after which the worker is not queued again."""

MOST_FINGERPRINTS = 64

_READ_EVERY_S = 60.0
_READ_S_PER_WORKER = 0.2


@final
@dataclass
class WorkerRecord:
    """A life of a worker; times in seconds since the epoch.

    The file `submissions/<id>/workers/<class>-<worker>.json` has all lives of a worker. Earlier releases added up lives
    on a node that ended alike.
    """

    submission: str
    resource_class: int
    """`class` in the file."""
    worker: int
    restarts: int
    """Restarts before this life."""
    job: str
    node: str
    host: str
    pid: int
    started: float
    touched: float
    seconds: float
    """Time at work, by the monotonic clock."""
    gpus: int
    slots: int
    ok: int = 0
    failed: int = 0
    stopped: int = 0
    left: Left | None = None
    """Why it left; None while it works, or if it was killed."""
    says: str | None = None
    cpus: int = 1
    failures: tuple[str, ...] = ()
    """Fingerprints of its trials' failures, each once."""
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")  # fields of later releases

    @property
    def place(self) -> tuple[str, int, int]:
        return self.node, self.resource_class, self.worker

    def hours(self, unit: str) -> float:
        """Return the hours it has used of its GPUs (`gpuh`) or cores (`cpuh`)."""
        return self.seconds / 3600 * (self.gpus if unit == "gpuh" else self.cpus)


_LIVES: Final = TypeAdapter(list[WorkerRecord])


def worker_path(layout: Layout, record: WorkerRecord) -> Path:
    """Return the path of the worker's file."""
    return layout.submission(record.submission) / "workers" / f"{record.resource_class}-{record.worker}.json"


def write_worker(layout: Layout, record: WorkerRecord) -> None:
    """Write the record of a life after those of earlier lives.

    A life writes nothing once the next life has begun: SLURM may have taken its node for dead.

    Raises EnvironmentProblem if the campaign cannot be written.
    """
    path = worker_path(layout, record)
    lives = _read(path) or []
    if any(life.restarts > record.restarts for life in lives):
        return
    data = [asdict(life) for life in (*(life for life in lives if life.restarts < record.restarts), record)]
    for life in data:
        life["class"] = life.pop("resource_class")
    write_json(path, {"schema": FILE_SCHEMA, "lives": data})


def read_workers(layout: Layout, submission: str) -> list[WorkerRecord]:
    """Return the records of a submission, by class, worker and life; skip files that cannot be read."""
    return read_records(layout, submission)[0]


def read_records(layout: Layout, submission: str) -> tuple[list[WorkerRecord], str | None]:
    """Return the same records, and a sentence about files that cannot be read."""
    files = [(path, _read(path)) for path in _paths(layout, submission)]
    records = [record for _, lives in files for record in lives or ()]
    records.sort(key=lambda each: (each.resource_class, each.worker, each.restarts))
    bad = sorted(path.name for path, lives in files if lives is None and path.exists())
    if not bad:
        return records, None
    return records, (
        f"{len(bad)} of {format_count(len(files), 'record')} of workers of submission {submission} cannot be read "
        f"(damaged, or of a newer version), such as {bad[0]}; hours and trials in there are not counted"
    )


def _paths(layout: Layout, submission: str) -> list[Path]:
    try:
        listed = list((layout.submission(submission) / "workers").iterdir())
    except FileNotFoundError:
        return []
    return [path for path in listed if path.suffix == ".json" and not is_temporary(path)]


def _read(path: Path) -> list[WorkerRecord] | None:
    """Return the lives in a file, in order; None if it is missing or cannot be read."""
    try:
        data: dict[str, Any] = read_json(path)
        if data.pop("schema") != FILE_SCHEMA:
            return None
        lives = data.get("lives", [data])  # older files have one life
        for life in lives:
            life["resource_class"] = life.pop("class")
        return _LIVES.validate_python(lives)
    except (NotFoundError, StoreError, ValidationError, KeyError, TypeError, AttributeError):
        return None


def used_hours(records: Iterable[WorkerRecord], unit: str) -> float:
    """Return the hours that the workers have used in total."""
    return math.fsum(each.hours(unit) for each in records)


@final
class BudgetTracker:
    """Tracks the budget of a submission; reads the records less often the more workers there are.

    Between reads it assumes that the workers continue.
    """

    def __init__(
        self, layout: Layout, submission: str, hours: float, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._layout, self._submission = layout, submission
        self._hours, self._unit, self._clock = hours, unit, clock
        self._final: dict[Path, float] = {}
        self._read_at = -math.inf
        self._next = -math.inf
        self._used = self._per_s = 0.0
        self._empty = False

    def empty(self) -> bool:
        """Return True once the budget is used up."""
        now = self._clock()
        if self._empty or now < self._read_at + _READ_EVERY_S:
            return self._empty
        if now >= self._next or self._used + (now - self._read_at) * self._per_s >= self._hours:
            self._read_files()
        return self._empty

    def _read_files(self) -> None:
        at_work: list[WorkerRecord] = []
        used = []
        for path in _paths(self._layout, self._submission):
            if path in self._final:
                continue
            lives = _read(path) or []
            if lives and lives[-1].left in FOR_GOOD:
                self._final[path] = used_hours(lives, self._unit)
            else:
                used.append(used_hours(lives, self._unit))
                at_work += [life for life in lives[-1:] if life.left is None]
        self._read_at = self._clock()
        self._next = self._read_at + max(_READ_EVERY_S, _READ_S_PER_WORKER * len(at_work))
        self._used = math.fsum((*self._final.values(), *used))
        self._per_s = used_hours((replace(each, seconds=1.0) for each in at_work), self._unit)
        self._empty = self._used >= self._hours


_LOOK_EVERY_S = 3.0


@final
@dataclass(frozen=True)
class CalledOff:
    """The whole submission, or some trials by their keys."""

    all: bool = False
    trials: frozenset[str] = frozenset()


def cancelled_path(layout: Layout, submission: str) -> Path:
    """Return the path of the file."""
    return layout.submission(submission) / "cancelled.json"


def write_cancelled(layout: Layout, submission: str, cancelled: CalledOff) -> None:
    """Write or replace the file."""
    record = {"schema": FILE_SCHEMA, "all": cancelled.all, "trials": sorted(cancelled.trials)}
    write_json(cancelled_path(layout, submission), record)


def read_cancelled(layout: Layout, submission: str) -> CalledOff:
    """Read the file. Raises StoreError if the file is damaged."""
    try:
        data = read_json(cancelled_path(layout, submission))
    except NotFoundError:
        return CalledOff()
    return CalledOff(bool(data["all"]), frozenset(data["trials"]))


@final
class Cancellations:
    """The file, as a worker watches it."""

    def __init__(self, layout: Layout, submission: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout, self._submission, self._clock = layout, submission, clock
        self._next = clock()
        self.current = CalledOff()

    def read_again(self) -> bool:
        """Read the file every few seconds; return True if `current` has changed."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + _LOOK_EVERY_S
        before = self.current
        with suppress(EnvironmentProblem, StoreError):  # it is read again later
            self.current = read_cancelled(self._layout, self._submission)
        return self.current != before


def open_submissions(layout: Layout) -> list[str]:
    """Ids of submissions that, by their files, have a worker that has not left for good and are not cancelled."""
    submissions = []
    for record in submission_records(layout):
        if isinstance(record, Unreadable) or not record.is_queued:
            continue
        last = {(each.resource_class, each.worker): each for each in read_workers(layout, record.submission)}
        over = sum(each.left in FOR_GOOD for each in last.values())
        with suppress(StoreError):  # damaged cancellations: monitoring says so
            if (
                over < sum(each.workers for each in record.classes)
                and not read_cancelled(layout, record.submission).all
            ):
                submissions.append(record.submission)
    return submissions
