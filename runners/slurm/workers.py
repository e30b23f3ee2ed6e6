"""Workers as they say themselves: a file per life of a task, written at its start, every minute and at its end."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, final

from grid.errors import NotFoundError, StoreError
from store.files import is_temporary, read_json, write_json
from store.layout import FILE_SCHEMA, Layout

Left = Literal["done", "time", "signal", "budget", "cancelled", "refused", "error"]

_LOOK_EVERY_S = 60.0
_LOOK_S_PER_WORKER = 0.2


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
        f"{len(bad)} of {len(read)} records of workers of submission {submission} are damaged or of a newer version, "
        f"such as {bad[0].name}; their hours and trials are not counted"
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
        return WorkerRecord(**data)
    except (NotFoundError, StoreError, KeyError, TypeError):
        return None


def used_hours(found: Iterable[WorkerRecord], unit: str) -> float:
    """What the workers have used in all."""
    return math.fsum(each.hours(unit) for each in found)


@final
class Purse:
    """What is left of a submission's budget, looked at again now and then; less often the more workers there are.

    Workers add up to the budget with what each of them uses between two looks: a minute or so.
    """

    def __init__(
        self, layout: Layout, submission: str, hours: float, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._layout = layout
        self._submission = submission
        self._hours = hours
        self._unit = unit
        self._clock = clock
        self._ended: dict[Path, WorkerRecord] = {}
        self._next = -math.inf
        self._empty = False

    def empty(self) -> bool:
        """Whether the budget is used up; it stays so."""
        if not self._empty and self._clock() >= self._next:
            found = list(map(self._record, _paths(self._layout, self._submission)))
            self._empty = used_hours((each for each in found if each is not None), self._unit) >= self._hours
            self._next = self._clock() + max(_LOOK_EVERY_S, _LOOK_S_PER_WORKER * len(found))
        return self._empty

    def _record(self, path: Path) -> WorkerRecord | None:
        found = self._ended.get(path) or _read(path)
        if found is not None and found.left is not None:
            self._ended[path] = found
        return found
