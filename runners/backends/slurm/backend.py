"""SLURM as a backend."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from ablate.grid import Grid
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.backend import Backend, Queued
from ablate.runners.backends.slurm.queue import SlurmQueue
from ablate.runners.output import slow_notice

if TYPE_CHECKING:
    from ablate.runners.backends.slurm.submit.draft import Drafter


@final
class SlurmBackend(SlurmQueue, Backend):
    """Queues job arrays of workers, which train trials until their time limit."""

    def submit(self, request: RunRequest, grids: Sequence[Grid], notify: Callable[[str], None]) -> Queued:
        """Queue the workers that the request asks for, or else the `Slurm` of the first spec file."""
        from ablate.runners.backends.slurm.submit.submission_words import queued_line
        from ablate.runners.backends.slurm.submit.submit import submit

        drafter = self._drafter(request, grids)
        with slow_notice("asking the cluster whether it takes the workers, and queueing them"):
            jobs = submit(drafter, notify)
        for note in jobs.draft.notes:
            notify(note)
        return Queued(jobs.record, drafter.chosen, queued_line(jobs), tuple(jobs.draft.elsewhere.submissions))

    def describe(self, request: RunRequest, grids: Sequence[Grid]) -> str:
        """Describe the workers and their scripts, also where there is no SLURM."""
        from ablate.runners.backends.slurm.submit.submission_words import dry_run_lines

        drafter = self._drafter(request, grids, dry_run=True)
        with slow_notice("asking the cluster whether it takes the workers"):
            return "\n".join(dry_run_lines(drafter.draft()))

    def _drafter(self, request: RunRequest, grids: Sequence[Grid], *, dry_run: bool = False) -> "Drafter":
        from ablate.runners.backends.slurm.spec import Slurm, cluster_of
        from ablate.runners.backends.slurm.submit.draft import Drafter

        slurm = request.cluster or (cluster_of(request.files[0]) if request.files else None)
        asked = Slurm.model_validate(slurm or Slurm())
        asked = asked if request.workers is None else asked.changed(workers=request.workers)
        with slow_notice("asking the cluster what it allows"):
            return Drafter(request, grids, asked, self._scheduler, dry_run=dry_run)
