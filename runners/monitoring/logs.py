"""The logs of a trial's attempts, as they are or as they grow; and the output of the task of a cluster that ran it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import final

from grid.errors import NotFoundError, StoreError
from store.export.escape_control import escape_control
from store.files.layout import Layout
from store.files.trial_status import AttemptState, trial_state

LOOK_EVERY_S = 0.3
"""How often a log that is followed is looked at."""

_BLOCK = 1 << 16


def find_attempt(layout: Layout, trial: str, number: int | None) -> AttemptState:
    """Attempt `number` of a trial, or its latest.

    Raises:
        NotFoundError: the trial has not begun, or has no such attempt.
    """
    attempts = {found.attempt: found for found in trial_state(layout, trial).attempts}
    if not attempts:
        raise NotFoundError(
            f"trial {trial[:8]} has no log, because it has not started; `ablate status` shows its worker"
        )
    if number is not None and number not in attempts:
        raise NotFoundError(f"trial {trial[:8]} has no attempt {number}; it has {', '.join(map(str, attempts))}")
    return attempts[max(attempts) if number is None else number]


def in_words(found: AttemptState) -> str:
    """One line about an attempt: where it ran and how it ended."""
    place = found.start.get("place") or {}
    job = f", job {place['job']}" if place.get("job") else ""
    end = found.end or {}
    reason = f" ({end['reason']})" if end.get("reason") else ""
    state = f"{end['status']}{reason}" if end else "running" if found.alive else "ended without a word"
    return f"attempt {found.attempt} on {place.get('node') or found.start['host']}{job}: {state}"


def worker_output(layout: Layout, found: AttemptState) -> Path:
    """The file with the output of the cluster's task that ran an attempt.

    Raises:
        NotFoundError: the attempt did not run on a cluster, or there is no such file.
    """
    from runners.slurm.worker_records import worker_log

    job = (found.start.get("place") or {}).get("job")
    if not job:
        raise NotFoundError(f"attempt {found.attempt} did not run on a cluster; leave --worker out for its own log")
    path = worker_log(layout, str(found.start["submission"]), str(job))
    if not path.is_file():
        raise NotFoundError(f"job {job} of attempt {found.attempt} has left no output in {path}")
    return path


def outputs_of_class(layout: Layout, trial: str) -> list[Path]:
    """Output of the workers of the latest submission, for a trial that has not begun.

    Raises:
        NotFoundError: there are none.
    """
    from runners.attempts.submission_record import Unreadable, submission_records
    from runners.slurm.worker_records import worker_logs

    records = [found for found in submission_records(layout) if not isinstance(found, Unreadable)]
    for record in reversed(records):
        row = _row(layout, record.submission, trial) if record.machine == "slurm" else None
        if row is None:
            continue
        jobs = {
            str(array.job) for found in record.classes if found.rows[0] <= row < found.rows[1] for array in found.arrays
        }
        every = worker_logs(layout, record.submission)
        if found := [path for job, path in every.items() if job.partition("_")[0] in jobs]:
            return found
    raise NotFoundError(
        f"trial {trial[:8]} has not started, and no worker that would take it has printed anything; `ablate status` "
        "shows its worker"
    )


def _row(layout: Layout, submission: str, trial: str) -> int | None:
    """The row of a trial in a manifest, if it is there."""
    from runners.attempts.manifest import Manifest

    try:
        manifest = Manifest(layout, submission)
        return next((row for row in range(len(manifest)) if manifest.trial(row) == trial), None)
    except StoreError:  # torn: `status` says so
        return None


@final
class LogFollower:
    """A file that is read on from where it was left."""

    def __init__(self, layout: Layout, path: Path) -> None:
        self._layout = layout
        self._path = path
        self._at = 0

    def more(self) -> Iterator[str]:
        """Yield new output since the last call, with control sequences escaped; nothing if there is no file.

        Raises:
            StoreError: the file lies outside the campaign.
        """
        try:
            file = self._layout.open_inside(self._path)
        except FileNotFoundError:
            return
        with file:
            file.seek(self._at)
            while block := file.read(_BLOCK):
                self._at += len(block)
                yield escape_control(block.decode("utf-8", "replace").replace("\r\n", "\n"))


def follow(layout: Layout, trial: str, number: int | None) -> Iterator[tuple[AttemptState | None, str]]:
    """Texts of a trial's logs as they grow, each attempt's announced first by itself; ends when the trial has.

    With `number` it follows this attempt alone. None stands for no attempt to announce.
    """
    at = find_attempt(layout, trial, number)
    while True:
        yield at, ""
        tail = LogFollower(layout, layout.log(trial, at.attempt))
        following = None
        while following is None:
            over = _over(layout, trial, at.attempt, alone=number is not None)  # before the text: what is last is read
            yield from ((None, text) for text in tail.more())
            if over:
                return
            following = None if number is not None else _next(layout, trial, at.attempt)
            if following is None:
                time.sleep(LOOK_EVERY_S)
        yield from ((None, text) for text in tail.more())
        at = following


def _over(layout: Layout, trial: str, attempt: int, *, alone: bool) -> bool:
    """Whether nothing more will be written: by the attempt, or by any."""
    state = trial_state(layout, trial)
    latest = state.attempts[-1]
    if alone:
        return any(found.attempt == attempt and found.end is not None for found in state.attempts)
    return latest.attempt == attempt and latest.end is not None and state.status in ("ok", "failed")


def _next(layout: Layout, trial: str, attempt: int) -> AttemptState | None:
    return next((found for found in trial_state(layout, trial).attempts if found.attempt > attempt), None)
