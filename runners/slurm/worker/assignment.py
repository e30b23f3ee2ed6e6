"""The assignment of a worker task: its rows, its job and its devices, from the submission's record."""

import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, final

from pydantic import ValidationError

from ablate.grid.errors import StoreError
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.attempts.worker import WorkOrder
from ablate.runners.attempts.worker_entry import WorkerEntry
from ablate.runners.provenance.environment import ask_gpus
from ablate.runners.slurm.spec import Resources, Slurm
from ablate.runners.slurm.worker.task_environment import TaskEnvironment
from ablate.store.files.layout import Layout

MOST_SIDE_BY_SIDE = 16
USED_OF_DEVICE = 0.9
CONTEXT_BYTES = 600 << 20
"""Memory of a process on a GPU before its first tensor, which torch does not count."""


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
            self.slurm, self.resources = Slurm.model_validate(self.record.slurm), Resources(**self.wanted.resources)
        except (ValidationError, TypeError) as error:
            raise StoreError(
                f"what submission {task.submission} asked of the cluster cannot be read ({error}); submit again"
            ) from error
        self.limit_s = self.resources.time * 60.0

    @property
    def job(self) -> WorkOrder:
        """The job of its worker processes; spec files are those of the extracted tree."""
        tree = Path(os.environ.get("ABLATE_TREE", "/"))
        job = self.record.job
        data: dict[str, Any] = job | {
            "root": self.layout.root,
            "submission": self.task.submission,
            "entry": WorkerEntry(**(job.get("entry") or {})),
            "files": tuple(tree / file for file in job.get("files", ())),
            "place": self.place.record,
        }
        known = {field.name for field in fields(WorkOrder)}
        return WorkOrder(**{name: value for name, value in data.items() if name in known})


def side_by_side(trial_bytes: int, device_bytes: int, cpus: int) -> int:
    """Return how many trials fit on a device, with a tenth of its memory to spare.

    At least one, which may not fit; at most one per CPU, and `MOST_SIDE_BY_SIDE`.
    """
    fits = int(USED_OF_DEVICE * device_bytes) // max(1, trial_bytes)
    return max(1, min(fits, cpus, MOST_SIDE_BY_SIDE))


def device_groups(devices: Sequence[str], per_trial: int) -> list[str | None]:
    """Cut devices into groups of `per_trial`; one None without devices."""
    if not devices:
        return [None]
    whole = range(0, len(devices) - per_trial + 1, per_trial)
    return [",".join(devices[first : first + per_trial]) for first in whole] or [",".join(devices)]


@final
class Packing:
    """Packing for per_gpu="auto": one trial per group of devices first, then as many as the first one's memory allows.

    `cpus` is the number of trials that have a processor. `memory_bytes` is the task's memory on the host; None: all.
    """

    def __init__(
        self, groups: Sequence[str | None], cpus: int, memory_bytes: int | None, notify: Callable[[str], None]
    ) -> None:
        self._groups, self._notify = groups, notify
        self._cpus = max(1, cpus // len(groups))
        self._memory_bytes = memory_bytes
        self._decided = False

    def grow(self, trial_bytes: int | None) -> list[str | None]:
        """Return the slots to add, once, after a trial that needed `trial_bytes` (None: unknown)."""
        if self._decided or not trial_bytes:
            return []
        self._decided = True
        devices = [device for group in self._groups for device in (group or "").split(",") if device]
        if not devices:
            host_bytes = self._memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            return list(self._groups) * (side_by_side(trial_bytes, host_bytes, self._cpus) - 1)
        sizes = _gpu_bytes(devices)
        if sizes is None:
            self._notify(
                f"nvidia-smi does not tell the memory of GPU {', '.join(devices)}, so one trial is trained on it at a "
                "time; --per-gpu N trains N side by side"
            )
            return []
        return list(self._groups) * (side_by_side(trial_bytes + CONTEXT_BYTES, min(sizes), self._cpus) - 1)


def _gpu_bytes(devices: Sequence[str]) -> list[int] | None:
    """Return the memory of each GPU, named as in CUDA_VISIBLE_DEVICES; None if nvidia-smi does not know one."""
    rows = [row for row in ask_gpus("index", "uuid", "memory.total") or [] if len(row) == 3 and row[2].isdecimal()]
    sizes = [
        int(size) << 20
        for device in devices
        for index, uuid, size in rows
        if device == index or (device.startswith("GPU-") and uuid.startswith(device))  # CUDA accepts shortened UUIDs
    ]
    return sizes if len(sizes) == len(devices) else None
