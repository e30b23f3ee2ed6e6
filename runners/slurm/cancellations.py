"""What of a submission was called off: `submissions/<id>/cancelled.json`, looked at every few seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from grid.errors import NotFoundError, StoreError
from store.files.atomic import read_json
from store.files.layout import Layout

_LOOK_EVERY_S = 3.0


@final
@dataclass(frozen=True)
class CalledOff:
    """All of it, or some trials by their keys."""

    all: bool = False
    trials: frozenset[str] = frozenset()


def cancelled_path(layout: Layout, submission: str) -> Path:
    """Where that is written."""
    return layout.submission(submission) / "cancelled.json"


def read_cancelled(layout: Layout, submission: str) -> CalledOff:
    """What was called off so far.

    Raises:
        StoreError: the file is torn.
    """
    try:
        data = read_json(cancelled_path(layout, submission))
    except NotFoundError:
        return CalledOff()
    return CalledOff(bool(data["all"]), frozenset(data["trials"]))


@final
class Cancellations:
    """The file as a worker watches it."""

    def __init__(self, layout: Layout, submission: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout = layout
        self._submission = submission
        self._clock = clock
        self._next = clock()
        self._stamp: tuple[int, int] | None = None
        self.found = CalledOff()

    def changed(self) -> bool:
        """Look again if that is due, and say whether there is something new in `found`."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + _LOOK_EVERY_S
        try:
            about = cancelled_path(self._layout, self._submission).stat()
            stamp = (about.st_mtime_ns, about.st_ino)
            if stamp == self._stamp:
                return False
            before, self.found = self.found, read_cancelled(self._layout, self._submission)
        except (OSError, StoreError):  # not there; or it cannot be read now, and will be looked at again
            return False
        self._stamp = stamp
        return self.found != before
