"""Train on this machine, for `ablate run` and `ablate retry`, and report the outcome of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.resolve import local_devices, read_warnings, worker_count
from ablate.runners.output import say, tell

if TYPE_CHECKING:
    from ablate.grid import Grid
    from ablate.runners.execution.run import RunResult

HERE = ("local", "inline", "ray")
"""Names of the machines that a run waits for."""

CODE_CHANGED = "the code or the spec file changed while the run went on; run the same command again"


def run_here(request: RunRequest, grids: "Sequence[Grid]", on: str) -> int:
    """Train on this machine, report, and return the exit code."""
    from ablate.runners.execution import Inline, Local, Machine
    from ablate.runners.execution.run import run_campaign
    from ablate.runners.monitoring.trial_locations import infinite_notes, outdated_notes
    from ablate.store.store import Store

    machine: Machine = Inline()
    if on == "ray":
        from ablate.runners.execution.ray_machine import Ray

        machine = Ray(None if request.workers is None else worker_count(request.workers))
    elif on == "local":
        machine = Local(devices=local_devices(request.workers, grids))
    result = run_campaign(request.root, grids, machine, request)
    code = report_outcome(result, request.root)
    if not result.interrupted:
        with Store.open(request.root) as store:
            read_warnings(store)
            tell(*outdated_notes(store, 0), *infinite_notes(store))
    return code


def report_outcome(result: "RunResult", root: Path, reason: str = CODE_CHANGED, *, cancelled: int = 0) -> int:
    """Write the counts of a run, and the reason why trials stopped that nobody cancelled; return the exit code."""
    tell(*result.problems)
    say(f"{_outcome_words(result)}; results in {root}")
    if result.interrupted:
        return 130
    left = result.stopped - cancelled
    if left:
        tell(reason)
    return 4 if result.failed or result.skipped_failed or left else 0


def _outcome_words(result: "RunResult") -> str:
    counts = {
        "trained": result.done,
        "failed": result.failed,
        "not finished (the same command goes on)": result.stopped,
        "were done before": result.skipped,
        "of these ran other code (--rerun-stale trains them again)": result.skipped_other_code,
        "failed before (tried again once their code changes, or with --retry)": result.skipped_failed,
    }
    return "; ".join(f"{n} {words}" for words, n in counts.items() if n) or "nothing was trained"
