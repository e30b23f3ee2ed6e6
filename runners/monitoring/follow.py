"""Follow submissions to their end: views of the campaign until the trials in question have ended."""

from collections.abc import Iterator, Sequence
from typing import final

from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.worker_records import read_cancelled
from ablate.runners.backends.backend import Submissions
from ablate.runners.execution.run import RunResult, count_skipped
from ablate.runners.monitoring.watch import WatchView, views
from ablate.runners.planning.worklist import GridTrial, Worklist
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import TrialState, trial_state
from ablate.store.state import ENDED, State

LOOK_EVERY_S = 3.0


@final
class Following:
    """Follows `wanted` until all have ended, or `submissions` have no worker left."""

    def __init__(self, layout: Layout, wanted: Sequence[GridTrial], submissions: Sequence[str]) -> None:
        self._layout, self._wanted, self._submissions = layout, wanted, submissions
        self._ended: dict[str, State] = {}
        ended = [trial.key for trial in wanted if trial.state in ENDED]
        self._ends_before = {key: _count_ends(trial_state(layout, key)) for key in ended}

    def views(self, backend: Submissions) -> Iterator[WatchView]:
        """Yield views until nothing is queued or running; KeyboardInterrupt leaves the workers alone."""
        for view in views(self._layout.root, backend, LOOK_EVERY_S, endless=True):
            yield view
            if self._is_over(view):
                return

    def _is_over(self, view: WatchView) -> bool:
        for trial in self._wanted:
            if trial.key not in self._ended and self._layout.trial(trial.key).exists():
                state = trial_state(self._layout, trial.key)
                if state.state in ENDED and _count_ends(state) > self._ends_before.get(trial.key, 0):
                    self._ended[trial.key] = state.state
        ours = [each for each in view.status.where.submissions if each.record.submission in self._submissions]
        standings = {status.standing(each.name) for status in ours for each in status.record.classes}
        return len(self._ended) == len(self._wanted) or not standings & {"live", "unknown"}

    def result(self, worklist: Worklist, submission: str | None) -> RunResult:
        """Return the result, in the form of a run on this machine."""
        states = list(self._ended.values())
        return RunResult(
            done=states.count(State.DONE),
            failed=states.count(State.FAILED),
            stopped=len(self._wanted) - len(states),
            **count_skipped(worklist),
            interrupted=False,
            submission=submission,
        )

    def count_cancelled(self) -> dict[str, int]:
        """Count the cancelled trials that have not ended, by submission.

        Raises StoreError if a record of cancellations is damaged.
        """
        keys = {trial.key for trial in self._wanted}.difference(self._ended)
        counts: dict[str, int] = {}
        for name in sorted(self._submissions, reverse=True):  # a trial belongs to the latest that has it
            if not self._layout.manifest(name).exists():
                continue
            cancelled, manifest = read_cancelled(self._layout, name), Manifest(self._layout, name)
            members = keys.intersection(manifest.trial(row) for row in range(len(manifest)))
            keys -= members
            if count := len(members if cancelled.all else members & cancelled.trials):
                counts[name] = count
        return counts


def _count_ends(state: TrialState) -> int:
    return sum(attempt.end is not None for attempt in state.attempts)
