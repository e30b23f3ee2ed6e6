"""Status of submissions and their workers: from the workers' records, the queue and the accounts."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, final

from grid.errors import StoreError
from runners.attempts.submission_record import (
    SILENT_S,
    ResourceClass,
    Submission,
    Unreadable,
    submission_records,
)
from runners.output import age, format_count
from runners.slurm.scheduler import QueueStatus, Scheduler, TaskStatus
from runners.slurm.worker_records import (
    FOR_GOOD,
    CalledOff,
    Left,
    WorkerRecord,
    given_up,
    logs,
    read_cancelled,
    read_records,
    used_hours,
    worker_log,
)
from store.files.layout import Layout

Standing = Literal["pending", "held", "running", "ended", "gone", "unknown"]
"""State of a worker; "gone": it ended without a record of its end."""

AT_WORK: tuple[Standing, ...] = ("running", "pending", "held", "unknown")

_ARRAY = "#SBATCH --array="
"""A line of the script of an array; where arrays are off, a worker is a job of its own."""

_NO_OUTPUT = "exit 0:53"
"""SLURM's exit code if the node could not open the output file."""

_BY_SHELL = TaskStatus("held", "JobHeldUser")
"""A task whose job was never written down: the shell that queued it, held, was cut off."""


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

    def standing(self, resources: str) -> Literal["live", "held", "over", "unknown"]:
        """Return if a class has workers that will take rows; "held": after a release."""
        if self.cancelled.all:
            return "over"
        standings = {worker.standing for worker in self.workers if worker.resources == resources}
        if standings & {"pending", "running"}:
            return "live"
        if "unknown" in standings:
            return "unknown"
        return "held" if "held" in standings else "over"

    @property
    def held(self) -> str | None:
        """A sentence about its held workers and what to do."""
        held = [worker for worker in self.workers if worker.standing == "held"]
        if not held or self.cancelled.all:
            return None
        reasons = ", ".join(sorted({worker.words for worker in held}))
        count = "a worker" if len(held) == 1 else f"{len(held)} workers"
        said = f"{count} of submission {self.record.submission}: held ({reasons})"
        if self.record.has_unknown_jobs:
            return f"{said} since the shell that queued them was cut off; the next `ablate run` takes them back"
        if not self.record.released:
            return f"{said} since the shell that queued them was cut off; the next `ablate run` lets them go"
        jobs = sorted({worker.job.partition("_")[0] for worker in held if worker.job})
        who = ", which takes an administrator where one has held them" if "Admin" in reasons else ""
        return f"{said}; `scontrol release {' '.join(jobs)}` lets them go{who}, `ablate run` queues their trials anew"

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


def read_submission_status(layout: Layout, scheduler: Scheduler) -> tuple[list[SubmissionStatus], list[str]]:
    """Return the status of the campaign's submissions, oldest first, and sentences about what is unknown.

    The queue is asked once for all submissions that may still work. The accounts are asked once for workers that are
    neither in the queue nor have a record of their end.
    """
    readers, notes = _readers(layout)
    active = [reader for reader in readers if reader.may_work]
    queue: QueueStatus | None = None
    accounts: Mapping[str, TaskStatus] = {}
    if active:
        notes += [note for reader in active if (note := reader.missing_snapshot) is not None]
        answer = scheduler.read_queue([job for reader in active for job in reader.record.jobs])
        if answer.asked is not None:
            queue = answer
            missing = sorted({job for reader in active for job in reader.missing_jobs(answer)})
            accounts = scheduler.read_accounts(missing).tasks if missing else {}
        if answer.problem is not None and answer.asked is not None:
            shown = f"the queue is shown as it was {age(answer.asked)} ago"
            notes.append(f"the scheduler does not answer ({answer.problem}); {shown}")
        elif answer.problem is not None:
            notes.append(f"the scheduler cannot be asked ({answer.problem}); workers are shown as their records say")
    return [reader.status(queue, accounts) for reader in readers], notes


def open_submissions(layout: Layout) -> list[str]:
    """Ids of submissions that, by their files, have a worker that has not left for good and are not cancelled."""
    readers, _ = _readers(layout)
    return [reader.record.submission for reader in readers if reader.may_work and not reader.cancelled.all]


def _readers(layout: Layout) -> "tuple[list[_StatusReader], list[str]]":
    readers: list[_StatusReader] = []
    notes: list[str] = []
    for record in submission_records(layout):
        if isinstance(record, Unreadable):
            notes.append(record.in_words())
        elif record.machine == "slurm":
            try:
                cancelled = read_cancelled(layout, record.submission)
            except StoreError as error:
                notes.append(Unreadable(record.submission, str(error)).in_words())
                continue
            workers, note = read_records(layout, record.submission)
            readers.append(_StatusReader(layout, record, cancelled, workers))
            notes += [note] if note else []
    return readers, notes


class _RequestedWorker(NamedTuple):
    resources: ResourceClass
    number: int
    job: str | None
    lives: list[WorkerRecord]

    @property
    def record(self) -> WorkerRecord | None:
        return self.lives[-1] if self.lives else None

    @property
    def left(self) -> Left | None:
        return self.lives[-1].left if self.lives else None


@final
@dataclass(frozen=True)
class _StatusReader:
    """Derives the status of a submission from its files and the scheduler's answers."""

    layout: Layout
    record: Submission
    cancelled: CalledOff
    records: list[WorkerRecord]

    @cached_property
    def workers(self) -> list[_RequestedWorker]:
        lives: dict[tuple[int, int], list[WorkerRecord]] = {}
        for each in self.records:
            lives.setdefault((each.resource_class, each.worker), []).append(each)
        found = []
        for index, resources in enumerate(self.record.classes):
            for array in resources.arrays:
                name = f"{resources.name} from {array.first}" if array.first else resources.name
                single = _ARRAY not in self.record.scripts.get(name, _ARRAY)
                for task in range(array.tasks):
                    job = None if array.job is None else str(array.job) if single else f"{array.job}_{task}"
                    number = array.first + task
                    found.append(_RequestedWorker(resources, number, job, lives.get((index, number), [])))
        return found

    @property
    def may_work(self) -> bool:
        return any(worker.left not in FOR_GOOD for worker in self.workers)

    @property
    def missing_snapshot(self) -> str | None:
        """A sentence if the code that its workers unpack is gone."""
        tar = (self.record.snapshot or {}).get("tar")
        if tar is None or self.cancelled.all or self.layout.snapshot_tar(tar).is_file():
            return None
        name = self.record.submission
        return (
            f"the snapshot {self.layout.snapshot_tar(tar)} is missing, so no further worker of submission {name} can "
            f"begin; restore it, or run `ablate cancel submission={name}` and `ablate run` again"
        )

    def missing_jobs(self, queue: QueueStatus) -> Iterator[int]:
        """Yield jobs of workers that are neither in the queue nor have a record of their end."""
        for worker in self.workers:
            if worker.job is not None and worker.job not in queue.tasks and worker.left is None:
                yield int(worker.job.partition("_")[0])

    def status(self, queue: QueueStatus | None, accounts: Mapping[str, TaskStatus]) -> SubmissionStatus:
        workers = tuple(self._status(worker, queue, accounts) for worker in self.workers)
        return SubmissionStatus(self.record, self.cancelled, workers, tuple(self.records))

    def _status(
        self, worker: _RequestedWorker, queue: QueueStatus | None, accounts: Mapping[str, TaskStatus]
    ) -> WorkerStatus:
        record = worker.record
        task = _BY_SHELL if worker.job is None else queue.tasks.get(worker.job) if queue else None
        standing, words = _standing(record, task, asked=queue is not None)
        account = accounts.get(worker.job or "")
        printed = None
        if standing in ("gone", "ended") and worker.job is not None:
            printed = given_up(self.layout, self.record.submission, worker.job, worker.left)
        if standing == "gone":
            words = words if account is None else account.words
            words = words if printed or record else f"{words}{self._missing_output(worker, account)}"
        seen = record.touched if record else self.record.written
        return WorkerStatus(
            submission=self.record.submission,
            resources=worker.resources.name,
            number=worker.number,
            standing=standing,
            job=worker.job or (record.job if record else None),
            node=None if standing in ("pending", "held") else (task and task.node) or (record and record.node),
            words=words,
            says=printed.text if printed else record.says if record else None,
            restarts=record.restarts if record else 0,
            time_left_s=task.time_left_s if task else None,
            seen=max(seen, queue.asked or seen) if queue and task else seen,
            ok=sum(life.ok for life in worker.lives),
            failed=sum(life.failed for life in worker.lives),
            output=str(printed.path) if printed else None,
        )

    def _missing_output(self, worker: _RequestedWorker, account: TaskStatus | None) -> str:
        """Return a likely reason if a task left no output."""
        submission = self.record.submission
        if self.cancelled.all or worker.job is None or worker_log(self.layout, submission, worker.job).exists():
            return ""
        folder = logs(self.layout, submission)
        if account is None:
            return f"; it was cancelled as it waited, or its node cannot write {folder}"
        if _NO_OUTPUT in account.words:
            return f": the node cannot write {folder}; is the campaign on a file system that nodes share?"
        return ""


def _standing(record: WorkerRecord | None, task: TaskStatus | None, *, asked: bool) -> tuple[Standing, str]:
    left = record.left if record else None
    if task is not None and task.state != "ended":
        return task.state, task.words
    if left is not None and (asked or left in FOR_GOOD):
        return "ended", left
    if asked:
        return "gone", "it left the queue and did not say why"
    if record is not None and left is None and time.time() - record.touched < SILENT_S:
        return "running", ""
    return "unknown", ""


def describe_outdated(active: int, finished: int) -> Iterator[str]:
    """Say how many trials an edit of the spec took out of their grids: queued or running ones, and finished ones."""
    for count, state, advice in (
        (active, "queued or running", "`ablate cancel --outdated` cancels them"),
        (finished, "finished", "no table shows these results"),
    ):
        if count:
            trials = f"{format_count(count, f'{state} trial')} {'is' if count == 1 else 'are'}"
            yield f"{trials} in no grid any more, since the plan changed; {advice}"
