"""Queue trials on a backend and follow them, for `ablate run` and `ablate retry`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.backend import Queued, Submissions, find_backend
from ablate.runners.cli.machine_flags import SlurmFlags
from ablate.runners.cli.run_here import report_outcome
from ablate.runners.monitoring.follow import Following
from ablate.runners.monitoring.trial_locations import describe_cancelled
from ablate.runners.monitoring.watch import show
from ablate.runners.output import say, tell, write

LEFT_ALONE = "no worker is left for these trials; `ablate status` says why, and the same command queues them again"


def run_on_backend(name: str, request: RunRequest, grids: Sequence[Grid], flags: SlurmFlags) -> int:
    """Show what would be queued, or queue it and follow it if asked; return the exit code.

    Raises SpecError or EnvironmentProblem if it was refused; the sentence says that nothing was queued.
    """
    backend = find_backend(name)
    try:
        queued = backend.describe(request, grids) if flags.dry_run else backend.submit(request, grids, tell)
    except (SpecError, EnvironmentProblem) as error:
        raise type(error)(f"{error}; nothing was queued") from error
    if isinstance(queued, str):
        write(queued)
        return 0
    say(f"{queued.words}; results in {request.root}")
    return _follow(Submissions({name: backend}), queued, request.root) if flags.wait else 0


def _follow(submissions: Submissions, queued: Queued, root: Path) -> int:
    name = queued.record.submission if queued.record else None
    worklist = queued.worklist
    following = Following(worklist.layout, worklist.to_do, [*queued.earlier, *([name] if name else [])])
    try:
        show(following.views(submissions), Console(stderr=True))
    except KeyboardInterrupt:
        tell("the workers go on without this shell; `ablate status --watch` follows again, `ablate cancel` stops them")
        return 130
    cancelled = following.count_cancelled()
    if cancelled:
        tell(describe_cancelled(cancelled))
    result = following.result(worklist, name)
    return report_outcome(result, root, LEFT_ALONE, cancelled=sum(cancelled.values()))
