"""Status of submissions and their workers: from the workers' records, the queue and the accounts."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

from ablate.grid.errors import StoreError
from ablate.runners.attempts.submission_record import (
    SILENT_S,
    Array,
    ResourceClass,
    Submission,
    Unreadable,
)
from ablate.runners.attempts.worker_logs import given_up, logs, worker_log
from ablate.runners.attempts.worker_records import (
    FOR_GOOD,
    CalledOff,
    Left,
    WorkerRecord,
    read_cancelled,
    read_records,
)
from ablate.runners.backends.backend import Standing, SubmissionStatus, WorkerStatus
from ablate.runners.backends.slurm.scheduler import QueueStatus, Scheduler, TaskStatus
from ablate.runners.output import age
from ablate.store.files.layout import Layout

_NO_OUTPUT = "exit 0:53"
"""SLURM's exit code if the node could not open the output file."""


def read_status(
    layout: Layout, records: Sequence[Submission], scheduler: Scheduler
) -> tuple[list[SubmissionStatus], list[str]]:
    """Return the status of submissions, and sentences about what is unknown.

    The queue is asked once for all submissions that may still work. The accounts are asked once for workers that are
    neither in the queue nor have a record of their end.
    """
    readers, notes = _readers(layout, records)
    active = [reader for reader in readers if reader.may_work]
    queue: QueueStatus | None = None
    accounts: Mapping[str, TaskStatus] = {}
    if active:
        notes += [note for reader in active if (note := reader.missing_snapshot) is not None]
        unnumbered = [reader.record.job_name for reader in active if reader.record.has_unknown_jobs]
        answer = scheduler.read_queue([job for reader in active for job in reader.record.jobs], unnumbered)
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


def _readers(layout: Layout, records: Sequence[Submission]) -> "tuple[list[_StatusReader], list[str]]":
    readers: list[_StatusReader] = []
    notes: list[str] = []
    for record in records:
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
    def lives(self) -> dict[tuple[int, int], list[WorkerRecord]]:
        lives: dict[tuple[int, int], list[WorkerRecord]] = {}
        for each in self.records:
            lives.setdefault((each.resource_class, each.worker), []).append(each)
        return lives

    @property
    def may_work(self) -> bool:
        return any(worker.left not in FOR_GOOD for worker in self._workers(None))

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
        for worker in self._workers(queue):
            if worker.job is not None and worker.job not in queue.tasks and worker.left is None:
                yield int(worker.job.partition("_")[0])

    def status(self, queue: QueueStatus | None, accounts: Mapping[str, TaskStatus]) -> SubmissionStatus:
        workers = tuple(self._status(worker, queue, accounts) for worker in self._workers(queue))
        held = None if self.cancelled.all else _held_words(self.record.submission, workers)
        return SubmissionStatus(self.record, self.cancelled, workers, tuple(self.records), held)

    def _workers(self, queue: QueueStatus | None) -> Iterator[_RequestedWorker]:
        by_name = queue.named.get(self.record.job_name, ()) if queue else ()
        unnumbered = iter(sorted(set(by_name) - set(self.record.jobs)))  # in the order of submission
        for index, resources in enumerate(self.record.classes):
            for array in resources.arrays:
                job = array.job if array.job is not None else next(unnumbered, None)
                single = self._is_single(resources, array, queue)
                for task in range(array.tasks):
                    name = None if job is None else str(job) if single else f"{job}_{task}"
                    number = array.first + task
                    yield _RequestedWorker(resources, number, name, self.lives.get((index, number), []))

    def _is_single(self, resources: ResourceClass, array: Array, queue: QueueStatus | None) -> bool:
        """Return True for a job without an array, by its script, else by the queue."""
        name = f"{resources.name} from {array.first}" if array.first else resources.name
        script = self.record.scripts.get(name)
        if script is not None:
            return "#SBATCH --array=" not in script
        return queue is not None and str(array.job) in queue.tasks

    def _status(
        self, worker: _RequestedWorker, queue: QueueStatus | None, accounts: Mapping[str, TaskStatus]
    ) -> WorkerStatus:
        record = worker.record
        task = queue.tasks.get(worker.job or "") if queue else None
        standing, words = _standing(record, task, asked=queue is not None)
        account = accounts.get(worker.job or "")
        printed = None
        if standing in ("lost", "ended") and worker.job is not None:
            printed = given_up(self.layout, self.record.submission, worker.job, worker.left)
        if standing == "lost":
            words = words if account is None else account.words
            words = words if printed or record else f"{words}{self._missing_output(worker, account)}"
        seen = record.touched if record else self.record.written
        return WorkerStatus(
            submission=self.record.submission,
            resources=worker.resources.name,
            number=worker.number,
            standing=standing,
            job=worker.job or (record.job if record else None),
            node=None if standing in ("queued", "held") else (task and task.node) or (record and record.node),
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


def _held_words(submission: str, workers: Sequence[WorkerStatus]) -> str | None:
    """Say how many workers are held, and what to do."""
    held = [worker for worker in workers if worker.standing == "held"]
    if not held:
        return None
    reasons = ", ".join(sorted({worker.words for worker in held}))
    count = "a worker" if len(held) == 1 else f"{len(held)} workers"
    said = f"{count} of submission {submission}: held ({reasons})"
    jobs = sorted({worker.job.partition("_")[0] for worker in held if worker.job})
    who = ", which takes an administrator where one has held them" if "Admin" in reasons else ""
    return f"{said}; `scontrol release {' '.join(jobs)}` lets them go{who}, `ablate run` queues their trials anew"


def _standing(record: WorkerRecord | None, task: TaskStatus | None, *, asked: bool) -> tuple[Standing, str]:
    left = record.left if record else None
    if task is not None and task.state != "ended":
        return task.state, task.words
    if left is not None and (asked or left in FOR_GOOD):
        return "ended", left
    if asked:
        return "lost", "it left the queue and did not say why"
    if record is not None and left is None and time.time() - record.touched < SILENT_S:
        return "running", ""
    return "unknown", ""
