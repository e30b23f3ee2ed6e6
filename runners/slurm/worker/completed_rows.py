"""The rows that workers know to be done.

Each worker writes one small file with the rows that it knows to be done, its own and those it read from others. So
workers examine few trials of others. A worker reads the trial of each row that no file lists.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.runners.attempts.attempt import require_there
from ablate.store.files.atomic import is_temporary, read_json, write_json
from ablate.store.files.layout import FILE_SCHEMA, Layout

_SHARE_EVERY_S = 60.0
_READ_S_PER_FILE = 0.1
"""The more files there are, the less often they are read."""


@final
class CompletedRows:
    """The rows of a class that the worker `name`, `<class>-<worker>`, knows to be done, also from before a requeue."""

    def __init__(
        self,
        layout: Layout,
        submission: str,
        name: str,
        rows: tuple[int, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submission = layout.submission_record(submission)
        self._path = self._submission.with_name("seen") / f"{name}.json"
        self._first, self._end = rows
        self._bits = 0
        """Bit i is set if row `first + i` is done."""
        self._clock = clock
        self._to_read: Iterator[Path] = iter(())
        self._read_next = -float("inf")
        self._new = False
        self._due = clock() + _SHARE_EVERY_S

    def __contains__(self, row: int) -> bool:
        return bool(self._bits >> (row - self._first) & 1)

    def add(self, row: int) -> None:
        self._merge(1 << (row - self._first))

    @property
    def complete(self) -> bool:
        """True if all rows are known to be done."""
        return self._bits.bit_count() == self._end - self._first

    def recall(self) -> None:
        """Read the file that this worker wrote before a requeue."""
        self._read(self._path)

    def read(self, until: float) -> bool:
        """Read files of the class's other workers until the clock shows `until`; return True if all due were read."""
        if self._clock() >= self._read_next:
            prefix = self._path.name.partition("-")[0] + "-"
            try:
                listed = sorted(self._path.parent.glob(f"{prefix}*"))
            except OSError:
                listed = []
            files = [path for path in listed if path != self._path and not is_temporary(path)]
            random.Random(self._path.name).shuffle(files)
            self._read_next = self._clock() + max(_SHARE_EVERY_S, _READ_S_PER_FILE * len(files))
            self._to_read = iter(files)
        for path in self._to_read:
            self._read(path)
            if self.complete:
                self._to_read = iter(())
            elif self._clock() >= until:
                return False
        return True

    def keep(self) -> None:
        if self._clock() >= self._due:
            self.publish()

    def publish(self) -> None:
        """Write the known rows, if there are new ones; a failure does no harm."""
        self._due = self._clock() + _SHARE_EVERY_S
        if not self._new:
            return
        known = {"schema": FILE_SCHEMA, "rows": [self._first, self._end], "done": f"{self._bits:x}"}
        try:
            require_there(self._submission)
            write_json(self._path, known)
        except EnvironmentProblem:  # the worker's record is written at the same times and reports the problem
            return
        self._new = False

    def _read(self, path: Path) -> None:
        try:
            data = read_json(path)
            if data["schema"] == FILE_SCHEMA and data["rows"] == [self._first, self._end]:
                self._merge(int(data["done"], 16))
        except (EnvironmentProblem, NotFoundError, StoreError, KeyError, TypeError, ValueError):  # it is a cache
            return

    def _merge(self, bits: int) -> None:
        self._new = self._new or bool(bits & ~self._bits)
        self._bits |= bits
