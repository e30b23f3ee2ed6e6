"""Submission records: what was submitted, with which code and environment, and its jobs.

The record is written before any job exists, and again with the number of each job. After a crash in between, jobs can
still be found by their name.
"""

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, final

from pydantic import TypeAdapter, ValidationError

from ablate.grid.errors import NotFoundError, StoreError
from ablate.runners.attempts.manifest import Manifest
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.trial_state import (
    TrialState,
    heartbeat_age,
    local_process,
    pid_space,
    process_started,
    trial_state,
)

if TYPE_CHECKING:
    from ablate.runners.attempts.run_request import RunRequest
    from ablate.runners.provenance.code_snapshot import Snapshot

SILENT_S = 180.0
"""Seconds without a sign after which a worker or a run counts as gone; workers write each minute."""

_MOST_LOOK_S = 2.0
"""Most seconds for which `runs_at_work` reads trials."""


@final
@dataclass(frozen=True)
class Array:
    """One job array, or one job if arrays are off: the workers `first` to `first + tasks - 1` of a class."""

    first: int
    tasks: int
    job: int | None = None
    """None until sbatch has answered."""


@final
@dataclass(frozen=True)
class ResourceClass:
    """Rows of the manifest whose workers need the same resources: `rows[0]` up to and without `rows[1]`."""

    name: str
    rows: tuple[int, int]
    resources: dict[str, Any]
    """partition, time (minutes), gpus, gpu_type, cpus, mem (MiB), per_gpu, per_trial (GPUs of one trial)."""
    workers: int
    arrays: tuple[Array, ...] = ()


@final
@dataclass(frozen=True)
class Submission:
    """`submissions/<id>/submission.json`."""

    submission: str
    machine: str
    """ "local", "inline", or the name of a backend, such as "slurm"."""
    written: float
    """Seconds since the epoch."""
    job: dict[str, Any]
    """`RunRequest.data`.

    Files are in the snapshot, or absolute; `specs` are the spec files as absolute paths.
    """
    slurm: dict[str, Any] | None = None
    """The `Slurm` spec as data."""
    snapshot: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    """{"hours": float, "unit": "gpuh" | "cpuh"}."""
    classes: tuple[ResourceClass, ...] = ()
    scripts: dict[str, str] = field(default_factory=dict)
    """Batch scripts, for people: by class name, or by `<class> from <first worker>` if a class has several."""
    host: str | None = None
    """Host of the process that trains without a scheduler, or that queued the jobs."""
    pid: int | None = None
    pid_started: int | None = None
    """In clock ticks since that host was booted."""
    pid_space: str | None = None
    """As in `start.json`."""
    ended: float | None = None
    """End of the run, in seconds since the epoch; None while it runs or if it was killed."""
    schema: int = FILE_SCHEMA

    @property
    def jobs(self) -> list[int]:
        return [array.job for each in self.classes for array in each.arrays if array.job is not None]

    def with_next_job(self, job: int) -> "Submission":
        """Return the record with the number of the first array that has none."""
        numbers = iter((*self.jobs, job))
        classes = [
            replace(each, arrays=tuple(replace(array, job=next(numbers, None)) for array in each.arrays))
            for each in self.classes
        ]
        return replace(self, classes=tuple(classes))

    @property
    def has_unknown_jobs(self) -> bool:
        """True if a job may exist whose number was never written down."""
        return any(array.job is None for each in self.classes for array in each.arrays)

    @property
    def job_name(self) -> str:
        extra = {name.replace("_", "-"): value for name, value in ((self.slurm or {}).get("extra") or {}).items()}
        return job_name(self.submission, extra.get("job-name"))

    @property
    def is_queued(self) -> bool:
        """True if a scheduler runs its workers: not the process that made the record."""
        return bool(self.classes)

    @property
    def process(self) -> int | None:
        """Pid of the run, if it is alive on this host; None for what is queued."""
        on = not self.is_queued and self.ended is None and local_process(vars(self)) is True
        return self.pid if on else None


def job_name(submission: str, word: str | None = None) -> str:
    """Name the jobs of a submission; `word` replaces "ablate"."""
    return f"{word or 'ablate'}-{submission}"


def write_submission_record(layout: Layout, record: Submission) -> None:
    """Write or replace the record. Raises EnvironmentProblem if the campaign cannot be written."""
    write_json(layout.submission_record(record.submission), asdict(record))


def read_submission_record(layout: Layout, submission: str) -> Submission:
    """Read the record of a submission.

    Raises:
        NotFoundError: it has none.
        StoreError: it is torn or altered, or a newer version has written it.
    """
    path = layout.submission_record(submission)
    data = read_json(path)
    if data.get("schema") != FILE_SCHEMA:
        raise StoreError(
            f"{path} has schema {data.get('schema')!r} and this version reads {FILE_SCHEMA}; update ablate, or look at "
            "it with the version that wrote it"
        )
    data.pop("released", None)  # earlier releases queued jobs held
    why = None
    try:
        record = TypeAdapter(Submission).validate_python(data)
    except ValidationError as error:
        why = " ".join(str(error).split())
    else:
        if set(data) - {each.name for each in fields(Submission)} or "classes" not in data:
            why = "its fields are not those that this version writes"
        elif record.submission != submission:
            why = f"it is that of {record.submission}"
    if why is not None:
        raise StoreError(f"{path} is no record of a submission ({why}); restore it, or remove it")
    return record


class Unreadable(NamedTuple):
    """A submission whose record is damaged, or of a newer version."""

    submission: str
    why: str

    def in_words(self) -> str:
        return f"what became of submission {self.submission} is not known: {self.why}"


def submission_records(layout: Layout) -> Iterator[Submission | Unreadable]:
    """Yield the records of a campaign's submissions, oldest first; those of old releases have none.

    On a cluster, the record is written before the directory of the logs.
    """
    for submission in layout.submission_ids():
        try:
            yield read_submission_record(layout, submission)
        except NotFoundError as error:
            if (layout.submission(submission) / "logs").is_dir():
                name = job_name(submission)
                yield Unreadable(submission, f"{error}; restore it, or end its jobs with `scancel --name={name}`")
        except StoreError as error:
            yield Unreadable(submission, str(error))


def new_record(job: "RunRequest", machine: str, snapshot: "Snapshot | None") -> Submission:
    """Return the record of a submission by this process, with its environment.

    With a snapshot, the `files` of the job are paths inside it; `specs` are the original files.
    """
    from ablate.runners.provenance.environment import record
    from ablate.runners.provenance.snapshot_contents import user_imports

    pid, data = os.getpid(), job.data()
    return Submission(
        job.submission,
        machine,
        time.time(),
        {**data, "specs": data["files"], "files": list(snapshot.spec) if snapshot else data["files"]},
        snapshot=asdict(snapshot) if snapshot else None,
        environment=record(user_imports()),
        budget=dict(job.budget) if job.budget else None,
        host=socket.gethostname(),
        pid=pid,
        pid_started=process_started(pid),
        pid_space=pid_space(),
    )


def record_run(layout: Layout, job: "RunRequest", machine: str) -> Submission:
    """Write the record of a run on this machine, with its snapshot, before the first trial.

    Raises EnvironmentProblem if the campaign cannot be written, or a spec file cannot be read.
    """
    from ablate.runners.provenance.code_snapshot import take

    record = new_record(job, machine, take(layout, job.files) if job.files else None)
    write_submission_record(layout, record)
    return record


class OpenRun(NamedTuple):
    """A run without a scheduler that has not recorded its end: alive on this host, or on another host."""

    record: Submission
    sign: float
    """Time of its latest sign of life, in seconds since the epoch: its record, a heartbeat, or now on this host."""


def open_runs(layout: Layout, states: Mapping[str, TrialState]) -> list[OpenRun]:
    """List such runs, oldest first; `states` are those of the trials that have begun and not ended, by key.

    A run on another host may not have begun a trial yet. Records that cannot be read are left out.
    """
    open_attempts = [
        (key, attempt) for key, state in states.items() for attempt in state.attempts if attempt.end is None
    ]
    runs = []
    for record in submission_records(layout):
        if not isinstance(record, Submission) or record.is_queued or record.ended is not None:
            continue
        here = local_process(vars(record))
        if here is not False:
            ours = (
                (key, attempt) for key, attempt in open_attempts if attempt.start["submission"] == record.submission
            )
            ages = (heartbeat_age(layout, key, attempt.attempt) for key, attempt in ours)
            beats = (time.time() - quiet_s for quiet_s in ages if quiet_s is not None)
            runs.append(OpenRun(record, time.time() if here else max((record.written, *beats))))
    return runs


def runs_at_work(layout: Layout) -> list[Submission]:
    """List the runs without a scheduler that have a process on this host, or on others a recent record or a trial.

    There may be very many trials: after `_MOST_LOOK_S`, a run on another host is listed without a sign of it.
    """
    until = time.monotonic() + _MOST_LOOK_S
    return [run.record for run in open_runs(layout, {}) if _may_work(layout, run, until)]


def _may_work(layout: Layout, run: OpenRun, until: float) -> bool:
    if time.time() - run.sign < SILENT_S:
        return True
    manifest = Manifest(layout, run.record.submission)
    for row in range(len(manifest)):
        live = trial_state(layout, manifest.trial(row)).live
        if time.monotonic() > until or (live and live.start["submission"] == run.record.submission):
            return True
    return False
