"""The end of a run in words, and its exit code."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runners.cli.options import Repeat
from runners.output import format_count, say

if TYPE_CHECKING:
    from grid import Grid
    from runners.execution.run import RunResult


def give_back(root: Path, grids: "Sequence[Grid]", repeat: Repeat) -> None:
    """With --rerun-stale, trials whose results cannot be read are trained anew."""
    from runners.attempts.unreadable_results import give_back_unreadable

    given_back = give_back_unreadable(root, [each.name for each in grids]) if repeat.again else 0
    if given_back:
        verbs = ("has", "is") if given_back == 1 else ("have", "are")
        trials = format_count(given_back, "finished trial")
        say(f"ablate: {trials} {verbs[0]} no readable result and {verbs[1]} trained again")


EDITED = "the code or the spec file changed while the run went on; run the same command again"


def report_outcome(result: "RunResult", root: Path, stopped: str = EDITED, *, called_off: int = 0) -> int:
    """Say what became of a run, and why some trials `stopped` that nobody `called_off`; its exit code."""
    for problem in result.problems:
        say(f"ablate: {problem}")
    say(f"{_in_words(result)}; results in {root}")
    if result.interrupted:
        return 130
    left = result.stopped - called_off
    if left:
        say(f"ablate: {stopped}")
    return 4 if result.failed or result.skipped_failed or left else 0


def _in_words(result: "RunResult") -> str:
    """How many trials came to what."""

    def of(number: int, one: str, more: str) -> str:
        return f"{number} {one if number == 1 else more}" if number else ""

    goes_on = "not finished, the same command goes on with"
    counts = (
        of(result.ok, "trained", "trained"),
        of(result.failed, "failed", "failed"),
        of(result.stopped, f"{goes_on} it", f"{goes_on} them"),
        of(result.skipped, "was done before", "were done before"),
        of(
            result.skipped_other_code,
            "of these ran other code (--rerun-stale trains it again)",
            "of these ran other code (--rerun-stale trains them again)",
        ),
        of(
            result.skipped_failed,
            "failed before and was not tried again (--retry does)",
            "failed before and were not tried again (--retry does)",
        ),
    )
    return "; ".join(filter(None, counts)) or "nothing was trained"
