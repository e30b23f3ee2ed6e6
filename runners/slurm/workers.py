"""Workers as they say themselves: a file per life of a task, written at its start, every minute and at its end."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

from grid.errors import NotFoundError, StoreError
from runners.output import counted
from store.files import is_temporary, read_json, write_json
from store.layout import FILE_SCHEMA, Layout

Left = Literal["done", "time", "signal", "budget", "cancelled", "refused", "error", "late", "full"]

GAVE_UP: tuple[Left, ...] = ("refused", "error", "late", "full")
"""Of those, the ends of workers that could not train; the last passes when there is room on the disk again."""

_LOOK_EVERY_S = 60.0
_LOOK_S_PER_WORKER = 0.2
"""Of those at work; in between it is counted on that they are."""


@final
@dataclass(frozen=True)
class WorkerRecord:
    """`submissions/<id>/workers/<class>-<worker>-<restarts>.json`; times in seconds since the epoch."""

    submission: str
    resource_class: int
    """`class` in the file."""
    worker: int
    """Its number within the class."""
    restarts: int
    job: str
    node: str
    host: str
    pid: int
    started: float
    touched: float
    seconds: float
    """How long it has been at work, by a clock that is never set."""
    gpus: int
    slots: int
    """Trials side by side."""
    ok: int = 0
    failed: int = 0
    stopped: int = 0
    left: Left | None = None
    """Why it left; None while it is there, or where it was killed."""
    says: str | None = None
    """What a person should know of why it left."""
    cpus: int = 1
    """Cores that were asked for."""
    failures: tuple[str, ...] = ()
    """Fingerprints of the failures it has met, each once."""

    def hours(self, unit: str) -> float:
        """What it has used: `gpuh` of its GPUs, or `cpuh` of its cores."""
        return self.seconds / 3600 * (self.gpus if unit == "gpuh" else self.cpus)


def worker_path(layout: Layout, found: WorkerRecord) -> Path:
    """Where the record lies."""
    name = f"{found.resource_class}-{found.worker}-{found.restarts}.json"
    return layout.submission(found.submission) / "workers" / name


def write_worker(layout: Layout, found: WorkerRecord) -> None:
    """Publish the record, or publish it anew.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    data = {"schema": FILE_SCHEMA, **asdict(found)}
    data["class"] = data.pop("resource_class")
    write_json(worker_path(layout, found), data)


def read_workers(layout: Layout, submission: str) -> list[WorkerRecord]:
    """The records of a submission, by class, worker and life; one that cannot be read is left out."""
    return read_records(layout, submission)[0]


def read_records(layout: Layout, submission: str) -> tuple[list[WorkerRecord], str | None]:
    """The records as above, and a sentence for those that cannot be read."""
    read = [(path, _read(path)) for path in _paths(layout, submission)]
    found = [record for _, record in read if record is not None]
    bad = sorted(path for path, record in read if record is None and path.exists())
    ordered = sorted(found, key=lambda each: (each.resource_class, each.worker, each.restarts))
    if not bad:
        return ordered, None
    return ordered, (
        f"{len(bad)} of {counted(len(read), 'record')} of workers of submission {submission} "
        f"{'is' if len(bad) == 1 else 'are'} damaged or of a newer version, such as {bad[0].name}; "
        f"{'its' if len(bad) == 1 else 'their'} hours and trials are not counted"
    )


def _paths(layout: Layout, submission: str) -> list[Path]:
    try:
        listed = list((layout.submission(submission) / "workers").iterdir())
    except FileNotFoundError:
        return []
    return [path for path in listed if path.suffix == ".json" and not is_temporary(path)]


def _read(path: Path) -> WorkerRecord | None:
    try:
        data: dict[str, Any] = read_json(path)
        data["resource_class"] = data.pop("class")
        if data.pop("schema") != FILE_SCHEMA:
            return None
        return WorkerRecord(**{**data, "failures": tuple(data.get("failures", ()))})
    except (NotFoundError, StoreError, KeyError, TypeError):
        return None


def used_hours(found: Iterable[WorkerRecord], unit: str) -> float:
    """What the workers have used in all."""
    return math.fsum(each.hours(unit) for each in found)


@final
class Purse:
    """What is left of a submission's budget, looked at again now and then; less often the more workers are at work.

    In between those are taken to go on as they were, so that a budget is not overdrawn by more than what workers use
    that have begun since: those of a minute or so.
    """

    def __init__(
        self, layout: Layout, submission: str, hours: float, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._layout = layout
        self._submission = submission
        self._hours = hours
        self._unit = unit
        self._clock = clock
        self._over: dict[Path, float] = {}
        self._lives: dict[tuple[int, int], int] = {}
        self._looked = -math.inf
        self._next = -math.inf
        self._used = self._per_s = 0.0
        self._empty = False

    def empty(self) -> bool:
        """Whether the budget is used up; it stays so."""
        now = self._clock()
        if self._empty or now < self._looked + _LOOK_EVERY_S:
            return self._empty
        if now >= self._next or self._used + (now - self._looked) * self._per_s >= self._hours:
            self._look()
        return self._empty

    def _look(self) -> None:
        """Read the records of those who may be at work; the others have been counted."""
        unread = [path for path in _paths(self._layout, self._submission) if path not in self._over]
        found = [(path, record) for path in unread if (record := _read(path)) is not None]
        for _, record in found:
            self._lives[_who(record)] = max(record.restarts, self._lives.get(_who(record), 0))
        at_work = []
        for path, record in found:
            if record.left is None and record.restarts == self._lives[_who(record)]:
                at_work.append(record)
            else:
                self._over[path] = record.hours(self._unit)
        self._looked = self._clock()
        self._next = self._looked + max(_LOOK_EVERY_S, _LOOK_S_PER_WORKER * len(at_work))
        self._used = math.fsum(self._over.values()) + used_hours(at_work, self._unit)
        self._per_s = used_hours((replace(each, seconds=1.0) for each in at_work), self._unit)
        self._empty = self._used >= self._hours


def _who(found: WorkerRecord) -> tuple[int, int]:
    return found.resource_class, found.worker
