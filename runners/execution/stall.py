"""Ends trials that stand still: `Execution.stall` is the longest time without a sign of progress.

Signs are a step, a batch or a value of an evaluation, a value of a probe, a checkpoint, and the end of a phase such as
loading data. The parent of a worker judges, since a thread of the worker stands still with a library that holds the
interpreter. It counts only time in which it checked itself: a machine that was suspended has stalled no trial.
"""

import os
import signal
import time
from contextlib import suppress
from typing import final

from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.run_request import RunRequest
from ablate.store.files.layout import Layout

_MOST_BETWEEN_CHECKS_S = 1.0
_SHOW_S = 0.5
"""From the signal that has the worker write where it stands to the one that ends it."""


@final
class Stall:
    """The silence of the worker of one trial."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.ended = False
        """True once the worker was killed for its silence."""
        self._asked = False
        self._silent_s, self._allowed_s, self._checked = 0.0, limit_s, time.monotonic()

    def hear(self, next_s: float) -> None:
        """Note a sign of progress; the next one may take `next_s` seconds if that is longer than the limit."""
        self._silent_s, self._allowed_s = 0.0, max(self.limit_s, next_s)

    def check(self, pid: int) -> None:
        """Kill the worker `pid` if its silence is too long, after it wrote its stack to the trial's log."""
        now = time.monotonic()
        self._silent_s += min(now - self._checked, _MOST_BETWEEN_CHECKS_S)
        self._checked = now
        if self._silent_s < self._allowed_s:
            return
        self.ended = self._silent_s >= self._allowed_s + _SHOW_S
        if self.ended or not self._asked:
            self._asked = True
            with suppress(ProcessLookupError):  # it died meanwhile
                os.kill(pid, signal.SIGKILL if self.ended else signal.SIGUSR1)


@final
class StallLimits:
    """The limits of the trials of a submission."""

    def __init__(self, job: RunRequest) -> None:
        self._manifest = Manifest(Layout(job.root), job.submission)

    def of(self, row: int) -> Stall | None:
        """Begin to watch the trial of a row; None if it has no limit."""
        limit_s = (self._manifest.line(row)["spec"].get("execution") or {}).get("stall")
        return None if limit_s is None else Stall(float(limit_s))
