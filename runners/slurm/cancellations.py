"""Cancelled submissions and trials: `submissions/<id>/cancelled.json`."""

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
    """The whole submission, or some trials by their keys."""

    all: bool = False
    trials: frozenset[str] = frozenset()


def cancelled_path(layout: Layout, submission: str) -> Path:
    """Return the path of the file."""
    return layout.submission(submission) / "cancelled.json"


def read_cancelled(layout: Layout, submission: str) -> CalledOff:
    """Read the file.

    Raises:
        StoreError: the file is damaged.
    """
    try:
        data = read_json(cancelled_path(layout, submission))
    except NotFoundError:
        return CalledOff()
    return CalledOff(bool(data["all"]), frozenset(data["trials"]))


@final
class Cancellations:
    """The file, as a worker watches it."""

    def __init__(self, layout: Layout, submission: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout = layout
        self._submission = submission
        self._clock = clock
        self._next = clock()
        self._stamp: tuple[int, int] | None = None
        self.current = CalledOff()

    def read_again(self) -> bool:
        """Read the file every few seconds; return True if `current` has changed."""
        if self._clock() < self._next:
            return False
        self._next = self._clock() + _LOOK_EVERY_S
        try:
            stat = cancelled_path(self._layout, self._submission).stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if stamp == self._stamp:
                return False
            before, self.current = self.current, read_cancelled(self._layout, self._submission)
        except (OSError, StoreError):  # missing or unreadable; try again later
            return False
        self._stamp = stamp
        return self.current != before
