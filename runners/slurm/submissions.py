"""The workers of a submission: from their records first, then the queue, then the accounts."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, final

from grid.errors import StoreError
from runners.attempts.submission_record import (
    Array,
    ResourceClass,
    Submission,
    Unreadable,
    job_name,
    submission_records,
)
from runners.output import age
from runners.slurm.cancellations import CalledOff, read_cancelled
from runners.slurm.queue import TaskId, shorthand, task_ids
from runners.slurm.scheduler import QueueStatus, Scheduler, TaskStatus
from runners.slurm.task_output import LastWords, given_up, logs, worker_log
from runners.slurm.worker_records import FOR_GOOD, WorkerRecord, read_records, used_hours
from store.files.layout import Layout

SILENT_S = 180.0
"""A worker writes its record every minute; after three without, its record no longer says that it is at work."""

Standing = Literal["pending", "held", "running", "ended", "gone", "unknown"]
"""Of a worker: it waits; waits until it is let go; works; has ended by itself; ended without saying so; nobody can be
asked."""

AT_WORK: tuple[Standing, ...] = ("running", "pending", "held", "unknown")
"""Of workers that have not ended, as far as is known."""

_NO_OUTPUT = "exit 0:53"
"""Of a task whose output SLURM could not open on the node."""


class WorkerStatus(NamedTuple):
    """One worker of a submission, as far as is known."""

    submission: str
    resources: str
    """The name of its resource class."""
    number: int
    standing: Standing
    job: str | None
    node: str | None
    words: str
    """Why it waits, why it left, how it ended."""
    says: str | None
    """What it said when it left."""
    restarts: int
    time_left_s: float | None
    seen: float
    """The last that is known of it, in seconds since the epoch."""
    ok: int
    failed: int
    output: str | None = None
    """Where what it printed lies, if that says that it was given up and its record does not."""


@final
@dataclass(frozen=True)
class SubmissionStatus:
    """A submission to a cluster and its workers."""

    record: Submission
    cancelled: CalledOff
    workers: tuple[WorkerStatus, ...]
    records: tuple[WorkerRecord, ...]

    def standing(self, resources: str) -> Literal["live", "held", "over", "unknown"]:
        """Whether a class of rows has workers that will take rows, or would if they were let go."""
        if self.cancelled.all:
            return "over"
        found = {worker.standing for worker in self.workers if worker.resources == resources}
        if found & {"pending", "running"}:
            return "live"
        if "unknown" in found:
            return "unknown"
        return "held" if "held" in found else "over"

    @property
    def held(self) -> str | None:
        """That some of its workers are held, and what to do, in a sentence."""
        found = [worker for worker in self.workers if worker.standing == "held"]
        if not found or self.cancelled.all:
            return None
        reasons = ", ".join(sorted({worker.words for worker in found}))
        count = "a worker" if len(found) == 1 else f"{len(found)} workers"
        said = f"{count} of submission {self.record.submission}: held ({reasons})"
        if any(array.job is None for each in self.record.classes for array in each.arrays):
            return f"{said} since the shell that queued them was cut off; the next `ablate run` takes them back"
        if not self.record.released:
            return f"{said} since the shell that queued them was cut off; the next `ablate run` lets them go"
        tasks = {task for worker in found if worker.job for task in task_ids(worker.job)}
        others = {worker.job.partition("_")[0] for worker in self.workers if worker.job and worker.standing != "held"}
        jobs = shorthand(task if str(task.job) in others else TaskId(task.job) for task in tasks)
        who = ", which takes an administrator where one has held them" if "Admin" in reasons else ""
        return f"{said}; `scontrol release {' '.join(jobs)}` lets them go{who}, `ablate run` queues their trials anew"

    @property
    def unit(self) -> str:
        """`gpuh`, or `cpuh` where its workers have no GPUs and no budget says otherwise."""
        if self.record.budget is not None:
            return str(self.record.budget["unit"])
        return "gpuh" if any(found.resources.get("gpus") for found in self.record.classes) else "cpuh"

    @cached_property
    def hours(self) -> float:
        """What its workers have used so far, in `unit`."""
        return used_hours(self.records, self.unit)

    @property
    def spent(self) -> bool:
        """Whether its budget is used up: its workers end what they have begun and begin nothing more."""
        return self.record.budget is not None and self.hours >= float(self.record.budget["hours"])

    @property
    def jobs(self) -> list[str]:
        """Jobs and tasks that wait or run, or may."""
        return [worker.job for worker in self.workers if worker.job and worker.standing not in ("ended", "gone")]


def read_submission_status(layout: Layout, scheduler: Scheduler) -> tuple[list[SubmissionStatus], list[str]]:
    """The crews of the campaign's submissions to a cluster, oldest first, and a sentence for what cannot be known.

    The queue is asked once, for all crews that may still work, and the accounts once, for workers that the queue does
    not know and whose record has no end.
    """
    drafts, notes = _drafts(layout)
    open_ones = [draft for draft in drafts if draft.may_work]
    if not open_ones:
        return [draft.crew(None, {}) for draft in drafts], notes
    nameless = [draft.name for draft in open_ones if draft.nameless]
    queue = scheduler.queued([job for draft in open_ones for job in draft.record.jobs], nameless)
    if queue.problem is not None:
        notes.append(_stale(queue))
    if queue.asked is None:
        return [draft.crew(None, {}) for draft in drafts], notes
    missing = sorted({job for draft in open_ones for job in draft.unaccounted(queue)})
    accounts = scheduler.accounted(missing).tasks if missing else {}
    return [draft.crew(queue, accounts) for draft in drafts], notes


def _stale(queue: QueueStatus) -> str:
    if queue.asked is None:
        return f"the scheduler cannot be asked ({queue.problem}); workers are shown as their records say"
    return f"the scheduler does not answer ({queue.problem}); the queue is shown as it was {age(queue.asked)} ago"


def _drafts(layout: Layout) -> "tuple[list[_Draft], list[str]]":
    drafts: list[_Draft] = []
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
            drafts.append(_Draft(layout, record, cancelled, workers))
            notes += [note] if note else []
    return drafts, notes


class _WorkerPlace(NamedTuple):
    """A worker as it was asked for."""

    resources: ResourceClass
    number: int
    job: str | None


@final
@dataclass(frozen=True)
class _Draft:
    """A crew before the scheduler was asked."""

    layout: Layout
    record: Submission
    cancelled: CalledOff
    records: list[WorkerRecord]

    @property
    def name(self) -> str:
        """What its jobs are called."""
        return job_name(self.record.submission)

    @property
    def nameless(self) -> bool:
        """Whether a job may exist whose number was never written down."""
        return any(array.job is None for found in self.record.classes for array in found.arrays)

    @cached_property
    def last(self) -> dict[tuple[int, int], WorkerRecord]:
        """The record of the latest life of each worker, by class and number."""
        return {(each.resource_class, each.worker): each for each in self.records}

    @cached_property
    def trained(self) -> Counter[tuple[int, int, str]]:
        """Trials by class, worker and what became of them, over all starts of the worker."""
        found: Counter[tuple[int, int, str]] = Counter()
        for each in self.records:
            found[each.resource_class, each.worker, "ok"] += each.ok
            found[each.resource_class, each.worker, "failed"] += each.failed
        return found

    @property
    def may_work(self) -> bool:
        """Whether any worker has not left for good."""
        return any(self._left(at, place) not in FOR_GOOD for at, place in self._places(None))

    def _left(self, at: int, place: _WorkerPlace) -> str | None:
        record = self.last.get((at, place.number))
        return record.left if record else None

    def unaccounted(self, queue: QueueStatus) -> Iterator[int]:
        """Jobs of workers that the queue does not know and that did not say how they ended."""
        for at, place in self._places(queue):
            if place.job is not None and place.job not in queue.tasks and self._left(at, place) is None:
                yield int(place.job.partition("_")[0])

    def crew(self, queue: QueueStatus | None, accounts: Mapping[str, TaskStatus]) -> SubmissionStatus:
        """The crew, with what the scheduler said; `queue` is None where it could not be asked."""
        workers = tuple(self._worker(at, place, queue, accounts) for at, place in self._places(queue))
        return SubmissionStatus(self.record, self.cancelled, workers, tuple(self.records))

    def _places(self, queue: QueueStatus | None) -> Iterator[tuple[int, _WorkerPlace]]:
        named = queue.named.get(self.name, ()) if queue else ()
        strays = iter(sorted(set(named) - set(self.record.jobs)))  # in the order in which they were submitted
        for at, resources in enumerate(self.record.classes):
            for array in resources.arrays:
                job = array.job if array.job is not None else next(strays, None)
                single = self._single(resources, array, queue)
                for task in range(array.tasks):
                    name = None if job is None else str(job) if single else f"{job}_{task}"
                    yield at, _WorkerPlace(resources, array.first + task, name)

    def _single(self, resources: ResourceClass, array: Array, queue: QueueStatus | None) -> bool:
        """Whether it is a job without an array, as its script says; else as the queue does."""
        name = f"{resources.name} from {array.first}" if array.first else resources.name
        script = self.record.scripts.get(name)
        if script is not None:
            return "#SBATCH --array=" not in script
        return queue is not None and str(array.job) in queue.tasks

    def _worker(
        self, at: int, place: _WorkerPlace, queue: QueueStatus | None, accounts: Mapping[str, TaskStatus]
    ) -> WorkerStatus:
        record = self.last.get((at, place.number))
        news = queue.tasks.get(place.job or "") if queue else None
        standing, words = _standing(record, news, asked=queue is not None)
        account = accounts.get(place.job or "")
        printed = self._given_up(place, record) if standing in ("gone", "ended") else None
        if standing == "gone":
            words = words if account is None else account.words
            words = words if printed or record else f"{words}{self._unprinted(place, account)}"
        seen = record.touched if record else self.record.written
        return WorkerStatus(
            submission=self.record.submission,
            resources=place.resources.name,
            number=place.number,
            standing=standing,
            job=place.job or (record.job if record else None),
            node=None if standing in ("pending", "held") else (news and news.node) or (record and record.node),
            words=words,
            says=printed.text if printed else record.says if record else None,
            restarts=record.restarts if record else 0,
            time_left_s=news.time_left_s if news else None,
            seen=max(seen, queue.asked or seen) if queue and news else seen,
            ok=self.trained[at, place.number, "ok"],
            failed=self.trained[at, place.number, "failed"],
            output=str(printed.path) if printed else None,
        )

    def _given_up(self, place: _WorkerPlace, record: WorkerRecord | None) -> LastWords | None:
        """What the task printed at its end, if nobody takes it any more and its record does not say why."""
        if place.job is None:
            return None
        return given_up(self.layout, self.record.submission, place.job, record.left if record else None)

    def _unprinted(self, place: _WorkerPlace, account: TaskStatus | None) -> str:
        """What may be wrong where a task has not even left an output."""
        folder = logs(self.layout, self.record.submission)
        if self.cancelled.all or place.job is None:
            return ""
        if worker_log(self.layout, self.record.submission, place.job).exists():
            return ""
        if account is not None and _NO_OUTPUT in account.words:
            return f": the node cannot write {folder}; is the campaign on a file system that nodes share?"
        if account is None:
            return f"; it was cancelled as it waited, or its node cannot write {folder}"
        return ""


def _standing(record: WorkerRecord | None, news: TaskStatus | None, *, asked: bool) -> tuple[Standing, str]:
    left = record.left if record else None
    if news is not None and news.state != "ended":
        return news.state, news.words
    if left is not None and (asked or left in FOR_GOOD):
        return "ended", left
    if asked:
        return "gone", "it left the queue and did not say why"
    if record is not None and left is None and time.time() - record.touched < SILENT_S:
        return "running", ""
    return "unknown", ""
