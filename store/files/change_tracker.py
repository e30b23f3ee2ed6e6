"""Directories of trials that are unchanged since the last ingest.

Trials are fanned out into up to 256 directories, `trials/<two digits>`. A process that begins, ends or evaluates an
attempt first gives the directory a new time of change (`touch_trial`), so an unchanged directory holds nothing new.

A directory is read again while its last change is younger than `SETTLED_S`, since a network file system may show an old
listing for a minute. It is also read every `LOOK_AGAIN_S`: files may have been changed by hand, or a process suspended
between the two steps. The cache belongs to one state of the database.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import final

from ablate.grid.errors import AblateError
from ablate.store.files.atomic import disk_errors, read_json, retry_io, write_json
from ablate.store.files.layout import FILE_SCHEMA, Layout

SETTLED_S = 90  # seconds after its last change in which a change of a directory may go unnoticed

LOOK_AGAIN_S = 600  # seconds after which a directory is looked at again, whatever it says


def touch_trial(layout: Layout, trial: str) -> None:
    """Say that files of `trial` are about to change."""
    directory = layout.trial(trial).parent
    with disk_errors("change", directory), suppress(FileNotFoundError):  # its first trial is about to make it
        retry_io(lambda: os.utime(directory))


Stamp = tuple[int, int, int]
"""Stamp of a file or directory: inode, and the times of change of its content and of itself, in ns."""


@final
class DirectoryCache:
    """The directories of trials, and which are in the database as they are; the caller holds the ingest lock."""

    def __init__(self, layout: Layout, *, thorough: bool) -> None:
        self._layout = layout
        self._now_ns = _now_ns(layout)
        self._stamps = {fan: _stamp(layout.trials / fan) for fan in layout.fans()}
        self._database = _stamp(layout.live)
        self._before = _read_stamps(layout, self._database)
        known = {} if thorough else self._before
        recent = {fan for fan, (_, read_ns) in known.items() if 0 <= self._now_ns - read_ns < LOOK_AGAIN_S * 10**9}
        self.same = frozenset(fan for fan in recent if self._stamps.get(fan) == known[fan][0])  # unchanged directories

    def remember(self, troubled: Iterable[str], unread: Iterable[str] = ()) -> None:
        """Keep for the next ingest what this one has seen; the database is closed.

        Directories of `troubled` records and those `unread` are read again.
        """
        again = {*unread, *(Path(file).parts[1] for file in troubled if file.startswith("trials/"))}
        seen = {fan: self._before[fan] for fan in self.same - again}
        for fan, stamp in self._stamps.items():
            settled = stamp is not None and self._now_ns - max(stamp[1:]) > SETTLED_S * 10**9
            if stamp is not None and settled and fan not in self.same | again:
                seen[fan] = (stamp, self._now_ns)
        database = _stamp(self._layout.live)
        if (seen, database) == (self._before, self._database):
            return
        record = {"schema": FILE_SCHEMA, "database": database, "directories": {fan: seen[fan] for fan in sorted(seen)}}
        write_json(self._layout.stamps, record)


def _read_stamps(layout: Layout, database: Stamp | None) -> dict[str, tuple[Stamp, int]]:
    """Stamp and time of the last reading of each directory; nothing if that was for another state of the database."""
    try:
        record = read_json(layout.stamps)
        if record["schema"] != FILE_SCHEMA or record["database"] != list(database or ()):
            return {}
        return {fan: ((stamp[0], stamp[1], stamp[2]), ns) for fan, (stamp, ns) in record["directories"].items()}
    except (AblateError, LookupError, TypeError, ValueError, AttributeError):
        return {}  # damaged or unreadable: everything is read again


def _now_ns(layout: Layout) -> int:
    """By the clock that stamps the campaign's files, which may be that of another machine."""
    with disk_errors("change", layout.ingest_lock):
        os.utime(layout.ingest_lock)
        return layout.ingest_lock.stat().st_mtime_ns


def _stamp(path: Path) -> Stamp | None:
    with suppress(OSError):  # it is then read each time
        status = retry_io(path.stat)
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns
    return None
