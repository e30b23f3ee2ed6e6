"""SLURM as a backend."""

from collections.abc import Callable, Sequence
from typing import final

from ablate.grid import Grid
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.submission_record import Submission
from ablate.runners.backends.backend import Backend
from ablate.runners.backends.slurm.queue import SlurmQueue


@final
class SlurmBackend(SlurmQueue, Backend):
    """Queues job arrays of workers, which train trials until their time limit."""

    def submit(self, request: RunRequest, grids: Sequence[Grid], notify: Callable[[str], None]) -> Submission | None:
        """Queue the workers that the `Slurm` of the first spec file asks for."""
        from ablate.runners.backends.slurm.spec import Slurm, cluster_of
        from ablate.runners.backends.slurm.submit.draft import Drafter
        from ablate.runners.backends.slurm.submit.submit import submit

        slurm = (cluster_of(request.files[0]) if request.files else None) or Slurm()
        slurm = slurm.changed(workers=request.workers or slurm.workers)
        return submit(Drafter(request, grids, slurm, self._scheduler), notify).record
