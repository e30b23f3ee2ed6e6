"""What a worker task was sent to do: its class of rows, its share of them, and the job, as the submission has it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, final

from pydantic import ValidationError

from grid.errors import StoreError
from runners.attempts.submission_record import ResourceClass, Submission, read_submission_record
from runners.attempts.worker import Job, WorkerEntry
from runners.slurm.spec import Resources, Slurm
from runners.slurm.worker.packing import Packing, device_groups
from runners.slurm.worker.rows import RowShare
from runners.slurm.worker.task_environment import TaskEnvironment
from store.files.layout import Layout


class Arguments(NamedTuple):
    """Those of the command that a worker task is."""

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

    def __init__(self, task: Arguments, place: TaskEnvironment) -> None:
        self.task = task
        self.place = place
        self.layout = Layout(Path(task.root))
        self.record = read_submission_record(self.layout, task.submission)
        self.wanted = self.record.classes[task.resource_class]
        self.worker = task.first + place.task
        self.slurm, self.resources = _asked(self.record, self.wanted)
        self.limit_s = self.resources.time * 60.0

    @property
    def share(self) -> RowShare:
        """The rows that are its own, among those of its class."""
        return RowShare(self.wanted.rows, self.worker, self.wanted.workers)

    @property
    def per_gpu(self) -> int | None:
        """Trials side by side; None: as many as the first one's memory allows."""
        return None if self.resources.per_gpu == "auto" else self.resources.per_gpu

    @property
    def job(self) -> Job:
        """What its worker processes must know; spec files are those of the extracted tree."""
        tree = Path(os.environ.get("ABLATE_TREE", "/"))
        job = self.record.job
        data: dict[str, Any] = job | {
            "root": self.layout.root,
            "submission": self.task.submission,
            "entry": _entry(job.get("entry") or {}),
            "files": tuple(tree / file for file in job.get("files", ())),
            "place": self.place.record,
        }
        known = {field.name for field in fields(Job)}
        return Job(**{name: value for name, value in data.items() if name in known})

    @property
    def groups(self) -> list[str | None]:
        """Its devices, cut into groups for one trial each."""
        return device_groups(self.place.devices(self.resources.gpus), self.resources.per_trial)

    def packing(self, first_spec: Mapping[str, Any], told: Callable[[str], None]) -> Packing:
        """How its trials are packed, each of which needs as many processors as the first of the class."""
        threads = int((first_spec.get("execution") or {}).get("threads", 1))
        cpus = self.place.cpus // (threads * self.resources.per_trial)
        return Packing(self.groups, cpus, self.place.memory_bytes, told)


def _asked(record: Submission, wanted: ResourceClass) -> tuple[Slurm, Resources]:
    try:
        return Slurm.model_validate(record.slurm), Resources(**wanted.resources)
    except (ValidationError, TypeError) as error:
        raise StoreError(
            f"what submission {record.submission} asked of the cluster cannot be read ({error}); submit again"
        ) from error


def _entry(data: Mapping[str, Any]) -> WorkerEntry:
    return WorkerEntry(**{**data, **({"preload": tuple(data["preload"])} if "preload" in data else {})})
