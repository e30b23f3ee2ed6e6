"""Submission records: what was submitted, with which code and environment, and its jobs.

The record is written before any job exists and again when the job ids are known. After a crash in between, jobs can
still be found by their name.
"""

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

from pydantic import TypeAdapter, ValidationError

from grid.errors import NotFoundError, StoreError
from store.files.atomic import read_json, write_json
from store.files.layout import FILE_SCHEMA, Layout
from store.files.trial_status import local_process, pid_space, process_started

if TYPE_CHECKING:
    from runners.attempts.worker import WorkOrder

SILENT_S = 180.0
"""Seconds without a sign after which a worker or a run counts as gone; workers write each minute."""


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
    """ "slurm", "local" or "inline"."""
    written: float
    """Seconds since the epoch."""
    job: dict[str, Any]
    """The fields of `runners.attempts.worker.WorkOrder` without root and submission.

    Files are in the snapshot, or absolute.

    `specs` are the spec files as absolute paths.
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
    released: bool = True
    """True if its jobs, which are queued held, were released."""
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
        """Known job ids."""
        return [array.job for found in self.classes for array in found.arrays if array.job is not None]

    @property
    def has_unknown_jobs(self) -> bool:
        """True if a job may exist whose number was never written down."""
        return any(array.job is None for each in self.classes for array in each.arrays)

    @property
    def job_name(self) -> str:
        """Name of its jobs."""
        extra = {name.replace("_", "-"): value for name, value in ((self.slurm or {}).get("extra") or {}).items()}
        return job_name(self.submission, extra.get("job-name"))

    @property
    def process(self) -> int | None:
        """Pid of the run, if it is alive on this host; None for SLURM."""
        on = self.machine != "slurm" and self.ended is None and local_process(vars(self)) is True
        return self.pid if on else None


def job_name(submission: str, word: str | None = None) -> str:
    """Name the jobs of a submission; `word` replaces "ablate"."""
    return f"{word or 'ablate'}-{submission}"


def write_submission_record(layout: Layout, found: Submission) -> None:
    """Write or replace the record.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    write_json(layout.submission_record(found.submission), asdict(found))


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
    problem = None
    try:
        record = TypeAdapter(Submission).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    else:
        if more := sorted(set(data) - {each.name for each in fields(Submission)}):
            problem = f"it says {', '.join(more)}"
        elif "classes" not in data:
            problem = "it says nothing of classes"
        elif record.submission != submission:
            problem = f"it is that of {record.submission}"
    if problem is not None:
        raise StoreError(f"{path} is no record of a submission ({problem}); restore it, or remove it")
    return record


class Unreadable(NamedTuple):
    """A submission whose record is damaged, or of a newer version."""

    submission: str
    why: str

    def in_words(self) -> str:
        """Describe it in a sentence."""
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


def job_data(job: "WorkOrder", snapshot: Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert `job` for the record; with a snapshot, `files` are paths inside it and `specs` the original files."""
    return {
        "entry": asdict(job.entry),
        "files": list(snapshot["spec"]) if snapshot else [str(file) for file in job.files],
        "specs": [str(file) for file in job.files],
        "retry": job.retry,
        "again": job.again,
        "modules": dict(job.modules),
        "heartbeat_s": job.heartbeat_s,
        "oom": job.oom,
    }


def record_run(layout: Layout, job: "WorkOrder", machine: Literal["local", "inline"]) -> Submission:
    """Write the record of a run on this machine, with its snapshot and environment, before the first trial.

    Raises:
        EnvironmentProblem: the campaign cannot be written, or a spec file cannot be read.
    """
    from runners.provenance.code_snapshot import take
    from runners.provenance.environment import record
    from runners.provenance.snapshot_contents import user_imports

    snapshot = take(layout, job.files).data() if job.files else None
    pid = os.getpid()
    found = Submission(
        job.submission,
        machine,
        time.time(),
        job_data(job, snapshot),
        snapshot=snapshot,
        environment=record(user_imports()),
        host=socket.gethostname(),
        pid=pid,
        pid_started=process_started(pid),
        pid_space=pid_space(),
    )
    write_submission_record(layout, found)
    return found


def record_end(layout: Layout, found: Submission) -> None:
    """Record that a run on this machine is over.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    write_submission_record(layout, replace(found, ended=time.time()))
