"""Records of workers: one file per worker, written at the start of a life, every minute and at its end."""

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
"""Ends of workers that could not train; "full" passes when the disk has space again."""

FOR_GOOD: tuple[Left, ...] = ("done", "budget", "cancelled", "late")
"""Ends after which the worker is not queued again."""

MOST_FINGERPRINTS = 64

_KEPT_APART: tuple[Left, ...] = ("refused", "error", "late")
"""Rare ends; other lives on the same node are merged into one record."""

_READ_EVERY_S = 60.0
_READ_S_PER_WORKER = 0.2


@final
@dataclass(frozen=True)
class WorkerRecord:
    """A life of a worker, or the sum of earlier lives on a node that ended alike; times in seconds since the epoch.

    The file `submissions/<id>/workers/<class>-<worker>.json` has all lives of a worker.
    """

    submission: str
    resource_class: int
    """`class` in the file."""
    worker: int
    """Its number within the class."""
    restarts: int
    """Restarts before this life; the last of several."""
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
    """Trials side by side."""
    ok: int = 0
    failed: int = 0
    stopped: int = 0
    left: Left | None = None
    """Why it left; None while it works, or if it was killed."""
    says: str | None = None
    """The reason in a sentence."""
    cpus: int = 1
    """Requested cores."""
    failures: tuple[str, ...] = ()
    """Fingerprints of its trials' failures, each once."""

    def hours(self, unit: str) -> float:
        """Return the hours it has used of its GPUs (`gpuh`) or cores (`cpuh`)."""
        return self.seconds / 3600 * (self.gpus if unit == "gpuh" else self.cpus)


def worker_path(layout: Layout, found: WorkerRecord) -> Path:
    """Return the path of its file."""
    return layout.submission(found.submission) / "workers" / f"{found.resource_class}-{found.worker}.json"


def write_worker(layout: Layout, found: WorkerRecord) -> None:
    """Write the record of a life after those of earlier lives.

    A life writes nothing once the next life has begun: SLURM may have taken its node for dead. A file that cannot be
    read is kept; the record gets a file of its own.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    path = worker_path(layout, found)
    lives = _read(path)
    if lives is None and path.exists():
        path = path.with_name(f"{path.stem}-{found.restarts}.json")
        lives = _read(path)
    lives = lives or []
    if any(life.restarts > found.restarts for life in lives):
        return
    lives = [*merge_lives(life for life in lives if life.restarts < found.restarts), found]
    write_json(path, {"schema": FILE_SCHEMA, "lives": [_data(life) for life in lives]})


def merge_lives(lives: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Add up lives of a worker on the same node that ended alike."""
    merged: dict[tuple[object, ...], WorkerRecord] = {}
    for life in sorted(lives, key=lambda each: each.restarts):
        apart = life.restarts if life.left in _KEPT_APART else None
        kind = (life.node, life.host, life.left, life.gpus, life.cpus, apart)
        merged[kind] = _sum(merged[kind], life) if kind in merged else life
    return sorted(merged.values(), key=lambda each: each.restarts)


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
    """Return the records of a submission, by class, worker and life; skip files that cannot be read."""
    return read_records(layout, submission)[0]


def read_records(layout: Layout, submission: str) -> tuple[list[WorkerRecord], str | None]:
    """Return the records of a submission, and a sentence about files that cannot be read."""
    files = [(path, _read(path)) for path in _paths(layout, submission)]
    records = [record for _, lives in files for record in lives or ()]
    bad = sorted(path for path, lives in files if lives is None and path.exists())
    ordered = sorted(records, key=lambda each: (each.resource_class, each.worker, each.restarts))
    if not bad:
        return ordered, None
    return ordered, (
        f"{len(bad)} of {counted(len(files), 'record')} of workers of submission {submission} "
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
    """Return the lives in a file, in order; None if it is missing or cannot be read."""
    try:
        data: dict[str, Any] = read_json(path)
        if data.pop("schema") != FILE_SCHEMA:
            return None
        return [_life(life) for life in data.get("lives", [data])]  # older files have one life
    except (NotFoundError, StoreError, KeyError, TypeError, AttributeError):
        return None


def _life(data: dict[str, Any]) -> WorkerRecord:
    data["resource_class"] = data.pop("class")
    return WorkerRecord(**{**data, "failures": tuple(data.get("failures", ()))})


def used_hours(found: Iterable[WorkerRecord], unit: str) -> float:
    """Return the hours that the workers have used in total."""
    return math.fsum(each.hours(unit) for each in found)


@final
class BudgetTracker:
    """Tracks the budget of a submission; reads the records less often the more workers there are.

    Between reads it assumes that the workers continue.
    """

    def __init__(
        self, layout: Layout, submission: str, hours: float, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._layout = layout
        self._submission = submission
        self._hours = hours
        self._unit = unit
        self._clock = clock
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
