"""What a worker task was sent to do: its class of rows, its share of them, and the job, as the submission has it."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, final

from runners.slurm.packing import Packing, device_groups
from runners.slurm.place import Place
from runners.slurm.rows import Share
from runners.submission import read_submission_record
from runners.worker import Entry, Job
from store.layout import Layout


class Task(NamedTuple):
    """The arguments of a worker task."""

    root: str
    submission: str
    resource_class: int
    """Its place among the classes of the submission."""
    first: int
    """The worker number of its array's first task."""


@final
class Assignment:
    """A task at its place.

    Raises:
        NotFoundError: there is no such submission.
        StoreError: its record is torn or altered.
    """

    def __init__(self, task: Task, place: Place) -> None:
        self.task = task
        self.place = place
        self.layout = Layout(Path(task.root))
        self.record = read_submission_record(self.layout, task.submission)
        self.wanted = self.record.classes[task.resource_class]
        self.worker = task.first + place.task
        slurm: Mapping[str, Any] = self.record.slurm or {}
        self.signal_s = float(slurm.get("signal_s", 120.0))
        self.limit_s = float(self.wanted.resources.get("time") or 240) * 60
        self.gpus = int(self.wanted.resources.get("gpus") or 0)

    @property
    def share(self) -> Share:
        """The rows that are its own, among those of its class."""
        return Share(self.wanted.rows, self.worker, self.wanted.workers)

    @property
    def per_gpu(self) -> int | None:
        """Trials side by side; None: as many as the first one's memory allows."""
        found = self.wanted.resources.get("per_gpu", 1)
        return None if found == "auto" else int(found or 1)

    @property
    def job(self) -> Job:
        """What its worker processes must know; spec files are those of the extracted tree."""
        tree = Path(os.environ.get("ABLATE_TREE", "/"))
        data = {"heartbeat_s": (self.record.slurm or {}).get("heartbeat_s", 15.0), **self.record.job}
        data |= {
            "root": self.layout.root,
            "submission": self.task.submission,
            "entry": _entry(data.get("entry") or {}),
            "files": tuple(tree / file for file in data.get("files", ())),
            "place": self.place.record,
        }
        known = {field.name for field in fields(Job)}
        return Job(**{name: value for name, value in data.items() if name in known})

    @property
    def groups(self) -> list[str | None]:
        """Its devices, cut into groups for one trial each."""
        return device_groups(self.place.devices(self.gpus), self._per_trial)

    def packing(self, first_spec: Mapping[str, Any]) -> Packing:
        """How its trials are packed, each of which needs as many processors as the first of the class."""
        threads = int((first_spec.get("execution") or {}).get("threads", 1))
        return Packing(self.groups, self.place.cpus // (threads * self._per_trial), self.place.memory_bytes)

    @property
    def _per_trial(self) -> int:
        """GPUs of one trial; without GPUs, its processes."""
        return int(self.wanted.resources.get("per_trial") or 1)


def _entry(data: Mapping[str, Any]) -> Entry:
    return Entry(**{**data, **({"preload": tuple(data["preload"])} if "preload" in data else {})})
