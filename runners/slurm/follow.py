"""Follow a submission to its end: read files every few seconds, ask the queue once a minute."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from runners.attempts.manifest import Manifest
from runners.attempts.worker import Came, Outcome
from runners.execution.progress import ProgressDisplay
from runners.execution.run import RunResult, begin_tally, count_skipped
from runners.planning.survey import Survey, Surveyed
from runners.slurm.scheduler import Scheduler
from runners.slurm.submissions import AT_WORK, SubmissionStatus, read_submission_status
from runners.slurm.worker_records import read_cancelled
from store.files.layout import Layout
from store.files.trial_status import TrialState, progress_of, trial_state

ASK_EVERY_S = 60.0
"""Seconds between questions to the queue, as the page for administrators promises."""

LOOK_EVERY_S = 3.0
_MOST_REASONS = 3
_LOOK_SHARE = 0.05
"""Share of the time that reading files may take."""

_CAME: Mapping[str, Came] = {"ok": "was_ok", "failed": "was_failed"}


@final
class Following:
    """Shows the progress of `wanted` until all have ended, or `submissions` have no worker left."""

    def __init__(
        self, found: Survey, wanted: Sequence[Surveyed], submissions: Sequence[str], scheduler: Scheduler
    ) -> None:
        self._layout: Layout = found.layout
        self._wanted = wanted
        self._submissions = frozenset(submissions)
        self._scheduler = scheduler
        self._ended: dict[int, str] = {}
        self._ends_before = {
            trial.key: _count_ends(trial_state(found.layout, trial.key)) for trial in wanted if trial.status in _CAME
        }
        self._tally = begin_tally(found, wanted)
        self._held = False

    def until_over(self, *, look_every_s: float = LOOK_EVERY_S, ask_every_s: float = ASK_EVERY_S) -> None:
        """Return when nothing is queued or running; KeyboardInterrupt leaves the workers alone."""
        asked = -ask_every_s
        with ProgressDisplay(self._tally) as display:
            while True:
                over = False
                if time.monotonic() - asked >= ask_every_s:
                    over = not self._has_workers(display)
                    asked = time.monotonic()
                before = time.monotonic()
                self._look(display)
                display.tick()
                if over or len(self._ended) == len(self._wanted):
                    return
                time.sleep(max(look_every_s, (time.monotonic() - before) / _LOOK_SHARE))

    def result(self, found: Survey, submission: str | None) -> RunResult:
        """Return the result, in the form of a run on this machine."""
        statuses = list(self._ended.values())
        return RunResult(
            ok=statuses.count("ok"),
            failed=statuses.count("failed"),
            stopped=len(self._wanted) - len(statuses),
            **count_skipped(found),
            interrupted=False,
            submission=submission,
        )

    def called_off(self) -> dict[str, int]:
        """Count the cancelled trials that have not ended, by submission.

        Raises StoreError if a record of cancellations is damaged.
        """
        keys = {trial.key for row, trial in enumerate(self._wanted) if row not in self._ended}
        counts: dict[str, int] = {}
        for name in sorted(self._submissions, reverse=True):  # a trial belongs to the latest that has it
            if not self._layout.manifest(name).exists():
                continue
            cancelled = read_cancelled(self._layout, name)
            manifest = Manifest(self._layout, name)
            members = keys.intersection(manifest.trial(row) for row in range(len(manifest)))
            keys -= members
            if count := len(members if cancelled.all else members & cancelled.trials):
                counts[name] = count
        return counts

    def _has_workers(self, display: ProgressDisplay) -> bool:
        statuses, notes = read_submission_status(self._layout, self._scheduler)
        for note in notes:
            display.note(note)
        ours = [status for status in statuses if status.record.submission in self._submissions]
        display.waits_for = waiting(ours)
        standings = {status.standing(each.name) for status in ours for each in status.record.classes}
        held_before, self._held = self._held, "held" in standings
        if standings & {"live", "unknown"} or (self._held and not held_before):  # the queue may lag behind a release
            return True
        for status in ours:
            if status.held is not None:
                display.note(status.held)
        return False

    def _look(self, display: ProgressDisplay) -> None:
        for row, trial in enumerate(self._wanted):
            if row in self._ended or not self._layout.trial(trial.key).exists():
                continue
            state = trial_state(self._layout, trial.key)
            if state.status in _CAME and _count_ends(state) > self._ends_before.get(trial.key, 0):
                self._ended[row] = state.status
                self._tally.came_back(Outcome(row, _CAME[state.status]))
                if state.status == "failed":
                    end, name = state.attempts[-1].end or {}, f"{trial.label}, seed {trial.seed} ({trial.key[:8]})"
                    display.note(f"{name} failed: {end.get('reason')}: {end.get('message')}")
            elif state.live is None:
                self._tally.running.pop(row, None)
            else:
                if row not in self._tally.running:
                    self._tally.begin(row, int((state.live.start.get("resumed_from") or {}).get("step", 0)))
                progress = progress_of(self._layout, trial.key, state.live.attempt)
                if progress is not None and progress.loss is not None:
                    self._tally.advance(row, progress.step, progress.steps, progress.loss)


def waiting(submissions: Iterable[SubmissionStatus]) -> str:
    """Count workers by state, with reasons: `workers: 2 running, 1 pending (Resources)`."""
    workers = [worker for status in submissions for worker in status.workers]
    standings = Counter(worker.standing for worker in workers)
    reasons = Counter(worker.words for worker in workers if worker.standing == "pending" and worker.words)
    why = f" ({', '.join(reason for reason, _ in reasons.most_common(_MOST_REASONS))})" if reasons else ""
    parts = [f"{standings[name]} {name}{why if name == 'pending' else ''}" for name in AT_WORK if standings[name]]
    return f"workers: {', '.join(parts)}" if parts else ""


def _count_ends(state: TrialState) -> int:
    return sum(attempt.end is not None for attempt in state.attempts)
