"""SLURM as a backend."""

from collections.abc import Callable, Sequence
from typing import final

from ablate.grid import Grid
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import Submission
from ablate.runners.backends.backend import Backend, SubmissionStatus
from ablate.runners.backends.slurm.scheduler import RecentAnswers, Scheduler, SlurmScheduler
from ablate.runners.backends.slurm.submissions import read_status
from ablate.store.files.layout import Layout


@final
class SlurmBackend(Backend):
    """Queues job arrays of workers, which train trials until their time limit."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self._scheduler = RecentAnswers(scheduler or SlurmScheduler())

    def submit(self, request: RunRequest, grids: Sequence[Grid], notify: Callable[[str], None]) -> Submission | None:
        """Queue the workers that the `Slurm` of the first spec file asks for."""
        from ablate.runners.backends.slurm.spec import Slurm, cluster_of
        from ablate.runners.backends.slurm.submit.draft import Drafter
        from ablate.runners.backends.slurm.submit.submit import submit

        slurm = (cluster_of(request.files[0]) if request.files else None) or Slurm()
        slurm = slurm.changed(workers=request.workers or slurm.workers)
        return submit(Drafter(request, grids, slurm, self._scheduler), notify).record

    def list(
        self, layout: Layout, records: Sequence[Submission], max_age_s: float
    ) -> "tuple[list[SubmissionStatus], list[str]]":
        """Ask the queue and the accounts once about all submissions that may still work."""
        self._scheduler.max_age_s = max_age_s
        return read_status(layout, records, self._scheduler)

    def cancel(self, found: SubmissionStatus) -> str | None:
        """Cancel the jobs of a submission that have not ended."""
        jobs = sorted({int(job.partition("_")[0]) for job in found.jobs})
        problem = self._scheduler.cancel(jobs) if jobs else None
        return problem and f"{problem}; `scancel {' '.join(map(str, jobs))}` does that"
