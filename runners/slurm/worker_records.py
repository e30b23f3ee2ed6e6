"""Workers as they say themselves: a file per worker, written at the start of a life, every minute and at its end."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

from grid.errors import NotFoundError, StoreError
from runners.output import counted
from store.files.atomic import is_temporary, read_json, write_json
from store.files.layout import FILE_SCHEMA, Layout

Left = Literal["done", "time", "signal", "budget", "cancelled", "refused", "error", "late", "full"]

GAVE_UP: tuple[Left, ...] = ("refused", "error", "late", "full")
"""Of those, the ends of workers that could not train; the last passes when there is room on the disk again."""

FOR_GOOD: tuple[Left, ...] = ("done", "budget", "cancelled", "late")
"""Ends after which no worker is queued again."""

MOST_FINGERPRINTS = 64

_TOLD_ONE_BY_ONE: tuple[Left, ...] = ("refused", "error", "late")
"""Ends of which a worker has a few at most; all other lives on a node become one record once they are over."""

_LOOK_EVERY_S = 60.0
_LOOK_S_PER_WORKER = 0.2
"""Of those at work; in between it is counted on that they are."""


@final
@dataclass(frozen=True)
class WorkerRecord:
    """A life of a worker, or earlier ones on one node that ended alike, added up; times in seconds since the epoch.

    A worker's lives are the file `submissions/<id>/workers/<class>-<worker>.json`.
    """

    submission: str
    resource_class: int
    """`class` in the file."""
    worker: int
    """Its number within the class."""
    restarts: int
    """How often it had been queued again; of several lives the last."""
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
    """Where the records of its worker lie."""
    return layout.submission(found.submission) / "workers" / f"{found.resource_class}-{found.worker}.json"


def write_worker(layout: Layout, found: WorkerRecord) -> None:
    """Publish the record of a life, or publish it anew, after what its file says of earlier lives.

    A life that was cut short is there as it was last written, so what it used counts. One that goes on although the
    next has begun, on a node that SLURM took for dead, writes nothing; if the two write at the same moment, what is
    missing then comes with the next life's next writing. Beside a file that cannot be read it has one of its own.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    path = worker_path(layout, found)
    there = _read(path)
    if there is None and path.exists():
        path = path.with_name(f"{path.stem}-{found.restarts}.json")
        there = _read(path)
    lives = there or []
    if any(life.restarts > found.restarts for life in lives):
        return
    lives = [*added_up(life for life in lives if life.restarts < found.restarts), found]
    write_json(path, {"schema": FILE_SCHEMA, "lives": [_data(life) for life in lives]})


def added_up(lives: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Lives that are over, those of a worker on a node that ended alike as one; by their last."""
    alike: dict[tuple[object, ...], WorkerRecord] = {}
    for life in sorted(lives, key=lambda each: each.restarts):
        single = life.restarts if life.left in _TOLD_ONE_BY_ONE else None
        how = (life.node, life.host, life.left, life.gpus, life.cpus, single)
        before = alike.get(how)
        alike[how] = life if before is None else _sum(before, life)
    return sorted(alike.values(), key=lambda each: each.restarts)


def _sum(before: WorkerRecord, life: WorkerRecord) -> WorkerRecord:
    return replace(
        life,
        started=before.started,
        seconds=before.seconds + life.seconds,
        ok=before.ok + life.ok,
        failed=before.failed + life.failed,
        stopped=before.stopped + life.stopped,
        failures=tuple(dict.fromkeys((*before.failures, *life.failures)))[:MOST_FINGERPRINTS],
    )


def _data(found: WorkerRecord) -> dict[str, Any]:
    data = asdict(found)
    return {"class": data.pop("resource_class"), **data}


def read_workers(layout: Layout, submission: str) -> list[WorkerRecord]:
    """The records of a submission, by class, worker and life; a file that cannot be read is left out."""
    return read_records(layout, submission)[0]


def read_records(layout: Layout, submission: str) -> tuple[list[WorkerRecord], str | None]:
    """The records as above, and a sentence for those that cannot be read."""
    read = [(path, _read(path)) for path in _paths(layout, submission)]
    found = [record for _, records in read for record in records or ()]
    bad = sorted(path for path, records in read if records is None and path.exists())
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


def _read(path: Path) -> list[WorkerRecord] | None:
    """The lives in a file, the last one last; None where it is not there or cannot be read."""
    try:
        data: dict[str, Any] = read_json(path)
        if data.pop("schema") != FILE_SCHEMA:
            return None
        return [_life(life) for life in data.get("lives", [data])]  # without: one life, of before files had several
    except (NotFoundError, StoreError, KeyError, TypeError, AttributeError):
        return None


def _life(data: dict[str, Any]) -> WorkerRecord:
    data["resource_class"] = data.pop("class")
    return WorkerRecord(**{**data, "failures": tuple(data.get("failures", ()))})


def used_hours(found: Iterable[WorkerRecord], unit: str) -> float:
    """What the workers have used in all."""
    return math.fsum(each.hours(unit) for each in found)


@final
class BudgetTracker:
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
        """Read the files of those who have not left for good; the others have been counted."""
        unread = [path for path in _paths(self._layout, self._submission) if path not in self._over]
        at_work: list[WorkerRecord] = []
        used = []
        for path in unread:
            lives = _read(path) or []
            if lives and lives[-1].left in FOR_GOOD:
                self._over[path] = used_hours(lives, self._unit)
            else:
                used.append(used_hours(lives, self._unit))
                at_work += [life for life in lives[-1:] if life.left is None]
        self._looked = self._clock()
        self._next = self._looked + max(_LOOK_EVERY_S, _LOOK_S_PER_WORKER * len(at_work))
        self._used = math.fsum((*self._over.values(), *used))
        self._per_s = used_hours((replace(each, seconds=1.0) for each in at_work), self._unit)
        self._empty = self._used >= self._hours
