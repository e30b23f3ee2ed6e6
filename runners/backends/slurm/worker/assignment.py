"""The assignment of a worker task: its rows, its job and its devices, from the submission's record."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

from pydantic import ValidationError

from ablate.grid.errors import StoreError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.backends.slurm.spec import Resources, recorded_request, without_removed
from ablate.runners.backends.slurm.worker.task_environment import TaskEnvironment
from ablate.store.files.layout import Layout


class Arguments(NamedTuple):
    """Command-line arguments of a worker task."""

    root: str
    submission: str
    resource_class: int
    """Index of its class in the submission."""
    first: int
    """Worker number of its array's first task."""


@final
class Assignment:
    """The rows, job and devices of a task.

    Raises:
        NotFoundError: there is no such submission.
        StoreError: its record is damaged.
    """

    def __init__(self, task: Arguments, place: TaskEnvironment) -> None:
        self.task = task
        self.place = place
        self.layout = Layout(Path(task.root))
        self.record = read_submission_record(self.layout, task.submission)
        self.wanted = self.record.classes[task.resource_class]
        self.worker = task.first + place.task
        try:
            self.slurm = recorded_request(self.record.slurm or {})
            self.resources = Resources(**without_removed(self.wanted.resources))
        except (ValidationError, TypeError) as error:
            raise StoreError(
                f"what submission {task.submission} asked of the cluster cannot be read ({error}); submit again"
            ) from error
        self.limit_s = self.resources.time * 60.0

    @property
    def devices(self) -> list[str | None]:
        """The devices of each trial side by side."""
        devices = self.place.devices(self.resources.gpus)
        return device_groups(devices, self.resources.per_node) * self.resources.per_gpu

    @property
    def job(self) -> RunRequest:
        """The job of its worker processes; spec files are those of the extracted tree."""
        here = {"root": self.layout.root, "submission": self.task.submission, "place": self.place.record}
        return RunRequest.read(self.record.job, Path(os.environ.get("ABLATE_TREE", "/")), **here)


def device_groups(devices: Sequence[str], per_trial: int) -> list[str | None]:
    """Cut devices into groups of `per_trial`; one None without devices."""
    if not devices:
        return [None]
    whole = range(0, len(devices) - per_trial + 1, per_trial)
    return [",".join(devices[first : first + per_trial]) for first in whole] or [",".join(devices)]
