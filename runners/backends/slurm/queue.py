"""The queue of SLURM: how submissions to it are, and their end."""

from collections.abc import Sequence

from ablate.runners.attempts.submission_record import Submission
from ablate.runners.backends.backend import SubmissionQueue, SubmissionStatus
from ablate.runners.backends.slurm.scheduler import RecentAnswers, Scheduler, SlurmScheduler
from ablate.runners.backends.slurm.submissions import read_status
from ablate.store.files.layout import Layout


class SlurmQueue(SubmissionQueue):
    """Submissions as the scheduler and its accounts know them."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self._scheduler = RecentAnswers(scheduler or SlurmScheduler())

    def list(
        self, layout: Layout, records: Sequence[Submission], max_age_s: float
    ) -> "tuple[list[SubmissionStatus], list[str]]":
        """Ask the queue and the accounts once about all submissions that may still work."""
        self._scheduler.max_age_s = max_age_s
        return read_status(layout, records, self._scheduler)

    def cancel(self, status: SubmissionStatus) -> str | None:
        """Cancel the jobs of a submission that have not ended."""
        jobs = sorted({int(job.partition("_")[0]) for job in status.jobs})
        problem = self._scheduler.cancel(jobs) if jobs else None
        return problem and f"{problem}; `scancel {' '.join(map(str, jobs))}` does that"
