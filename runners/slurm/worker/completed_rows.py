"""Rows that are done for good, as the workers of a submission tell one another.

Who looks for work would otherwise look at every trial of its class, in every life of every worker. Each worker writes
one small file with all that it knows, its own rows and what it has read of others. What is missing in these files costs
a look at the trial and nothing else.
"""

import base64
import binascii
import random
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from grid.errors import EnvironmentProblem, NotFoundError, StoreError
from runners.attempts.attempt import require_there
from store.files.atomic import is_temporary, read_json, write_json
from store.files.layout import FILE_SCHEMA, Layout

_EVERY_S = 60.0
_READ_S_PER_FILE = 0.1
"""The more files there are, the less often they are read."""


@final
class CompletedRows:
    """What the worker called `name`, `<class>-<worker>` in each of its lives, knows of the rows of its class."""

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
        self._bits = bytearray((self._end - self._first + 7) // 8)
        self._clock = clock
        self._to_read: Iterator[Path] = iter(())
        self._read_next = -float("inf")
        self._new = False
        self._due = clock() + _EVERY_S

    def __contains__(self, row: int) -> bool:
        place = row - self._first
        return bool(self._bits[place >> 3] >> (place & 7) & 1)

    def add(self, row: int) -> None:
        """The row is done."""
        if row not in self:
            place = row - self._first
            self._bits[place >> 3] |= 1 << (place & 7)
            self._new = True

    @property
    def complete(self) -> bool:
        """Whether all rows are known to be done."""
        return int.from_bytes(self._bits, "little").bit_count() == self._end - self._first

    def recall(self) -> None:
        """Read what earlier lives of this very worker knew: one file."""
        self._learn(self._path)

    def read(self, until: float) -> bool:
        """Go on reading what the others know, until that time of the clock; whether all that is due was read."""
        if self._clock() >= self._read_next:
            files = self._files()
            self._read_next = self._clock() + max(_EVERY_S, _READ_S_PER_FILE * len(files))
            self._to_read = iter(files)
        for path in self._to_read:
            self._learn(path)
            if self.complete:
                self._to_read = iter(())
            elif self._clock() >= until:
                return False
        return True

    def keep(self) -> None:
        """Publish, if the last time is long enough ago."""
        if self._clock() >= self._due:
            self.publish()

    def publish(self) -> None:
        """Write what is known, if there is more than the last time; nothing depends on it."""
        self._due = self._clock() + _EVERY_S
        if not self._new:
            return
        known = base64.b64encode(zlib.compress(bytes(self._bits))).decode("ascii")
        try:
            require_there(self._submission)
            write_json(self._path, {"schema": FILE_SCHEMA, "rows": [self._first, self._end], "done": known})
        except EnvironmentProblem:  # the record of this worker, which is written at the same times, says so
            return
        self._new = False

    def _files(self) -> list[Path]:
        """Those of the other workers of this class: each reads them in an order of its own."""
        try:
            listed = list(self._path.parent.iterdir())
        except OSError:
            return []
        same = self._path.name.partition("-")[0] + "-"
        others = (path for path in listed if path.name.startswith(same) and path != self._path)
        found = sorted(path for path in others if not is_temporary(path))
        random.Random(self._path.name).shuffle(found)
        return found

    def _learn(self, path: Path) -> None:
        try:
            data = read_json(path)
            if data["schema"] != FILE_SCHEMA or data["rows"] != [self._first, self._end]:
                return
            theirs = zlib.decompress(base64.b64decode(data["done"], validate=True))
        except (EnvironmentProblem, NotFoundError, StoreError, KeyError, TypeError, binascii.Error, zlib.error):
            return
        if len(theirs) == len(self._bits):
            both = int.from_bytes(self._bits, "little") | int.from_bytes(theirs, "little")
            more = bytearray(both.to_bytes(len(self._bits), "little"))
            self._new = self._new or more != self._bits
            self._bits = more
