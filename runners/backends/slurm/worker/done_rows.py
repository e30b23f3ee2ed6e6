"""The rows of a submission that are done: an empty file for each, which spares other workers a look at its trial."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import final

from ablate.store.files.layout import Layout

_LIST_EVERY_S = 60.0


@final
class DoneRows:
    """The rows that are known to be done; `clock` is in seconds."""

    def __init__(self, layout: Layout, submission: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = layout.submission(submission) / "done"
        self._rows: set[int] = set()
        self._clock = clock
        self._due = -float("inf")
        with suppress(OSError):  # a campaign that is gone is not made again
            self._folder.mkdir(exist_ok=True)

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def add(self, row: int, *, mark: bool = True) -> None:
        """Know a row to be done, and mark it for other workers."""
        self._rows.add(row)
        if not mark:
            return
        with suppress(OSError):  # a row without a mark is looked at by others
            os.close(os.open(self._folder / str(row), os.O_CREAT, 0o666))

    def read(self) -> None:
        """Read the marks of all workers, once a minute."""
        if self._clock() < self._due:
            return
        with suppress(OSError):
            self._rows.update(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())
        self._due = self._clock() + _LIST_EVERY_S
