"""Following a submission to its end, from files every few seconds and by one question to the queue a minute."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from runners.attempts.manifest import Manifest
from runners.attempts.worker import Came, Outcome
from runners.execution.progress import ProgressDisplay
from runners.execution.run import RunResult
from runners.execution.run_tally import GridMember, Tally, tally
from runners.planning.survey import Survey, Surveyed
from runners.slurm.cancellations import read_cancelled
from runners.slurm.scheduler import Scheduler
from runners.slurm.submissions import AT_WORK, SubmissionStatus, read_submission_status
from store.files.layout import Layout
from store.files.trial_status import TrialState, progress_of, trial_state

ASK_EVERY_S = 60.0
"""Between questions to the queue: what an administrator is promised."""

LOOK_EVERY_S = 3.0
_MOST_REASONS = 3
_LOOK_SHARE = 0.05
"""Of the time, the part that looking may take."""

_CAME: Mapping[str, Came] = {"ok": "was_ok", "failed": "was_failed"}


@final
class Following:
    """Shows how `wanted` get on until all have ended, or no worker of `submissions` is left."""

    def __init__(
        self, found: Survey, wanted: Sequence[Surveyed], submissions: Sequence[str], scheduler: Scheduler
    ) -> None:
        self._layout: Layout = found.layout
        self._wanted = wanted
        self._submissions = frozenset(submissions)
        self._scheduler = scheduler
        self._ended: dict[int, str] = {}
        self._before = {trial.key: _ended(found.layout, trial) for trial in wanted if trial.status in _CAME}
        self._tally = _tally(found, wanted)
        self._held = False

    def until_over(self, *, look_every_s: float = LOOK_EVERY_S, ask_every_s: float = ASK_EVERY_S) -> None:
        """Return when nothing of it is queued or running; KeyboardInterrupt leaves the workers alone."""
        asked = -ask_every_s
        with ProgressDisplay(self._tally) as shown:
            while True:
                over = False
                if time.monotonic() - asked >= ask_every_s:
                    over = not self._has_workers(shown)
                    asked = time.monotonic()
                before = time.monotonic()
                self._look(shown)
                shown.tick()
                if over or len(self._ended) == len(self._wanted):
                    return
                time.sleep(max(look_every_s, (time.monotonic() - before) / _LOOK_SHARE))

    def result(self, found: Survey, submission: str | None) -> RunResult:
        """What became of the trials, as of a run on this machine."""
        statuses = list(self._ended.values())
        left = [trial for trial in found.trials if not found.wants(trial)]
        return RunResult(
            ok=statuses.count("ok"),
            failed=statuses.count("failed"),
            stopped=len(self._wanted) - len(statuses),
            skipped=sum(trial.status == "ok" for trial in left),
            skipped_failed=sum(trial.status == "failed" for trial in left),
            skipped_other_code=sum(trial.other_code for trial in left),
            interrupted=False,
            submission=submission,
        )

    def called_off(self) -> dict[str, int]:
        """How many of the trials that have not ended were called off, by submission.

        Raises:
            StoreError: a record of that is torn.
        """
        keys = {trial.key for row, trial in enumerate(self._wanted) if row not in self._ended}
        found: dict[str, int] = {}
        for name in sorted(self._submissions, reverse=True):  # a trial is with the latest that has it
            if not self._layout.manifest(name).exists():
                continue
            off = read_cancelled(self._layout, name)
            manifest = Manifest(self._layout, name)
            members = keys.intersection(manifest.trial(row) for row in range(len(manifest)))
            chosen = members if off.all else members & off.trials
            keys -= members
            if chosen:
                found[name] = len(chosen)
        return found

    def _has_workers(self, shown: ProgressDisplay) -> bool:
        crews, notes = read_submission_status(self._layout, self._scheduler)
        for note in notes:
            shown.note(note)
        ours = [crew for crew in crews if crew.record.submission in self._submissions]
        shown.waits_for = waiting(ours)
        standings = {crew.standing(each.name) for crew in ours for each in crew.record.classes}
        held_before, self._held = self._held, "held" in standings
        if standings & {"live", "unknown"} or (self._held and not held_before):  # the queue may be behind a release
            return True
        for crew in ours:
            if crew.held is not None:
                shown.note(crew.held)
        return False

    def _look(self, shown: ProgressDisplay) -> None:
        for row, trial in enumerate(self._wanted):
            if row not in self._ended and self._layout.trial(trial.key).exists():
                self._see(row, trial, shown)

    def _see(self, row: int, trial: Surveyed, shown: ProgressDisplay) -> None:
        state = trial_state(self._layout, trial.key)
        if self._is_new(trial, state) and state.status in _CAME:
            self._ended[row] = state.status
            self._tally.came_back(Outcome(row, _CAME[state.status]))
            last = state.attempts[-1].end or {}
            if state.status == "failed":
                shown.note(
                    f"{trial.label}, seed {trial.seed} ({trial.key[:8]}) failed: {last.get('reason')}: "
                    f"{last.get('message')}"
                )
            return
        self._step(row, trial, state)

    def _step(self, row: int, trial: Surveyed, state: TrialState) -> None:
        if state.live is None:
            self._tally.running.pop(row, None)
            return
        found = progress_of(self._layout, trial.key, state.live.attempt)
        if row not in self._tally.running:
            resumed = state.live.start.get("resumed_from") or {}
            self._tally.started(row, int(resumed.get("step", 0)))
        if found is not None and found.loss is not None:
            self._tally.stepped(row, found.step, found.steps, found.loss)

    def _is_new(self, trial: Surveyed, state: TrialState) -> bool:
        """Whether the state is not the one that this submission is to change."""
        return len([each for each in state.attempts if each.end is not None]) > self._before.get(trial.key, 0)


def waiting(crews: Iterable[SubmissionStatus]) -> str:
    """How many workers there are, and what those wait for that wait: `workers: 2 running, 1 pending (Resources)`."""
    workers = [worker for crew in crews for worker in crew.workers]
    standings = Counter(worker.standing for worker in workers)
    reasons = Counter(worker.words for worker in workers if worker.standing == "pending" and worker.words)
    why = f" ({', '.join(reason for reason, _ in reasons.most_common(_MOST_REASONS))})" if reasons else ""
    parts = [f"{standings[name]} {name}{why if name == 'pending' else ''}" for name in AT_WORK if standings[name]]
    return f"workers: {', '.join(parts)}" if parts else ""


def _ended(layout: Layout, trial: Surveyed) -> int:
    return sum(found.end is not None for found in trial_state(layout, trial.key).attempts)


def _tally(found: Survey, wanted: Sequence[Surveyed]) -> Tally:
    keys = {trial.key for trial in wanted}
    begun = tally(
        ((trial.grid, trial.label) for trial in found.trials),
        [GridMember((trial.grid, trial.label), trial.seed) for trial in wanted],
    )
    for trial in found.trials:
        if trial.key not in keys and trial.status in ("ok", "failed"):
            (begun.ok if trial.status == "ok" else begun.failed)[trial.grid, trial.label] += 1
    return begun
