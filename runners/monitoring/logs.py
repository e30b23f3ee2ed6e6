"""The logs of a trial's attempts, and the output of the worker that ran it."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.attempts.worker_logs import worker_log
from ablate.runners.output import name_measure
from ablate.store.export.plain import escape_control
from ablate.store.files.atomic import disk_errors
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import AttemptState, trial_state
from ablate.store.state import ENDED

if TYPE_CHECKING:
    from ablate.store.store import Store

LOOK_EVERY_S = 0.3
"""Pause between two reads of a log that is followed."""

_BLOCK = 1 << 16


def find_attempt(layout: Layout, trial: str, number: int | None) -> AttemptState:
    """Return attempt `number` of a trial, or its latest.

    Raises NotFoundError if the trial has not begun, or has no such attempt.
    """
    attempts = {each.attempt: each for each in trial_state(layout, trial).attempts}
    if not attempts:
        raise NotFoundError(
            f"trial {trial[:8]} has no log, because it has not started; `ablate status` shows its worker, and "
            "`ablate status --failures` the output of workers that left"
        )
    if number is not None and number not in attempts:
        raise NotFoundError(f"trial {trial[:8]} has no attempt {number}; it has {', '.join(map(str, attempts))}")
    return attempts[max(attempts) if number is None else number]


def in_words(attempt: AttemptState) -> str:
    """Describe where an attempt ran and how it ended."""
    place = attempt.start.get("place") or {}
    job = f", job {place['job']}" if place.get("job") else ""
    end = attempt.end or {}
    reason = f" ({end['reason']})" if end.get("reason") else ""
    state = f"{end['status']}{reason}" if end else "running" if attempt.alive else "ended without a word"
    return f"attempt {attempt.attempt} on {place.get('node') or attempt.start['host']}{job}: {state}"


def describe_stored(store: "Store", trial: str, attempt: AttemptState) -> str | None:
    """Say how far an attempt came, by what the campaign stores of it; None if it has recorded no step."""
    known = store.sql(_STORED, {"trial": trial, "attempt": attempt.attempt}).row(0, named=True)
    if known["step"] is None:
        return None
    end = attempt.end or {}
    words = [f"step {known['step']}{known['of_steps']}", *filter(None, [known["loss"]])]
    for grid in known["grids"] if end.get("status") == "ok" else ():
        with suppress(SpecError):  # several points agree with it
            if measure := store.grid(grid)["measure"]:
                values = store.final(grid, measure["name"], measure["point"]).filter(trial=trial)["value"].drop_nulls()
                words += [f"{name_measure(measure)} {value:.4g}" for value in values]
    if end and end["status"] != "ok":
        words.append(f"ended: {' '.join(str(end.get('message') or end.get('reason') or end['status']).split())}")
    return f"stored: trial {known['state']}; attempt {attempt.attempt}: {', '.join(dict.fromkeys(words))}"


_STORED: Final = """
SELECT t.state, ifnull(' of ' || (t.spec->>'$.training.steps'), '') AS of_steps,
       greatest(any_value(a.step), max(l.step)) AS step,
       arg_max(format('last loss {:.4g}', l.value), l.step) FILTER (l."table" = 'metric' AND l.name = 'loss') AS loss,
       list_sort(ifnull((SELECT list(DISTINCT grid) FROM grid_trial WHERE trial = $trial), [])) AS grids
FROM trial t LEFT JOIN attempt a ON a.trial = t.trial AND a.attempt = $attempt
LEFT JOIN last_value l ON l.trial = t.trial AND l.attempt = $attempt WHERE t.trial = $trial GROUP BY ALL
"""


def worker_output(layout: Layout, attempt: AttemptState) -> Path:
    """Return the file with the output of the SLURM task that ran an attempt.

    Raises NotFoundError if the attempt did not run on a cluster, or there is no such file.
    """
    job = (attempt.start.get("place") or {}).get("job")
    if not job:
        raise NotFoundError(f"attempt {attempt.attempt} did not run on a cluster; leave --worker out for its own log")
    path = worker_log(layout, str(attempt.start["submission"]), str(job))
    if not path.is_file():
        raise NotFoundError(f"job {job} of attempt {attempt.attempt} has left no output in {path}")
    return path


@final
class LogFollower:
    """Reads a growing file from where it stopped."""

    def __init__(self, layout: Layout, path: Path) -> None:
        self._layout = layout
        self._path = path
        self._at = 0

    def more(self) -> Iterator[str]:
        """Yield new output since the last call, with control sequences escaped; nothing if there is no file.

        Raises StoreError if the file lies outside the campaign or is none; EnvironmentProblem if it cannot be read.
        """
        with disk_errors("read", self._path), suppress(FileNotFoundError), self._layout.open_inside(self._path) as file:
            file.seek(self._at)
            while block := file.read(_BLOCK):
                self._at += len(block)
                yield escape_control(block.decode("utf-8", "replace").replace("\r\n", "\n"))


def follow(layout: Layout, trial: str, number: int | None) -> Iterator[tuple[AttemptState | None, str]]:
    """Yield the texts of a trial's logs as they grow, until the trial ends.

    Each attempt is announced by itself first; otherwise the attempt is None. `number` follows this attempt alone.
    """
    at = find_attempt(layout, trial, number)
    while True:
        yield at, ""
        tail = LogFollower(layout, layout.log(trial, at.attempt))
        later: AttemptState | None = None
        while later is None:
            state = trial_state(layout, trial)  # before the text, so that the last lines are read
            ended = any(each.attempt == at.attempt and each.end is not None for each in state.attempts)
            if number is None:
                later = next((each for each in state.attempts if each.attempt > at.attempt), None)
            yield from ((None, text) for text in tail.more())
            if ended and later is None and (number is not None or state.state in ENDED):
                return
            if later is None:
                time.sleep(LOOK_EVERY_S)
        yield from ((None, text) for text in tail.more())
        at = later
