"""Leases: decides which attempts are alive, without comparing clocks of different hosts.

An attempt on this host is alive if its process is. An attempt on another host sends heartbeats. It is dead if the
latest heartbeat has not changed for a lease, measured by this host's monotonic clock. The time inside the heartbeat is
never compared with another clock, so clock jumps do no harm. An observer therefore waits for a lease after its first
check.

Between two checks, the silence grows by at most one heartbeat interval, however far apart they are. So after an outage
of the file server, an owner has several intervals to send a heartbeat.

All processes of a host share their observations in its temporary directory, so that a new worker does not wait again.
Observations older than an hour are deleted.
"""

import json
import math
import os
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, final

from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import beat_s, last_beat_ns, lease_s, local_process

_KEPT_S = 3600.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Sighting(NamedTuple):
    """A heartbeat, and for how long it has been the latest."""

    beat_ns: int | None
    """None: there was none."""
    silent_s: float
    clock_s: float
    """Time of the last check, in seconds of the observer's own clock."""


@final
class Leases:
    """An observer at `place`, as in `start.json`; `clock` is monotonic, in seconds.

    `shared` returns the directory where the observers of this host share their observations, or None.
    """

    def __init__(
        self,
        place: Mapping[str, Any] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        shared: Callable[[], Path | None] | None = None,
    ) -> None:
        self._place, self._clock, self._shared = place, clock, shared or host_memory
        self._seen: dict[tuple[Path, str, int], Sighting] = {}
        self._tidied = -math.inf

    def alive(self, layout: Layout, trial: str, attempt: int, start: Mapping[str, Any]) -> bool:
        """Return True if the attempt that wrote `start` and no end is at work.

        Raises EnvironmentProblem if the file system does not answer.
        """
        if earlier_life(start.get("place"), self._place):
            return False
        here = local_process(start)
        if here is not None:
            return here
        return self._silent_s(layout, trial, attempt, beat_s(start)) < lease_s(start)

    def _silent_s(self, layout: Layout, trial: str, attempt: int, most_s: float) -> float:
        beat, now = last_beat_ns(layout, trial, attempt), self._clock()
        place = (layout.root, trial, attempt)
        file = self._file(place, now)
        silent_s = 0.0
        for each in filter(None, (self._seen.get(place), None if file is None else _read(file))):
            if each.beat_ns == beat and each.clock_s <= now:  # else there was a sign of life, or another boot
                silent_s = max(silent_s, each.silent_s + min(now - each.clock_s, most_s))
        self._seen[place] = Sighting(beat, silent_s, now)
        if file is not None:
            with suppress(OSError):  # it only spares others a wait
                file.write_text(json.dumps([beat, silent_s, now]))
        return silent_s

    def _file(self, place: tuple[Path, str, int], now: float) -> Path | None:
        directory = self._shared()
        if directory is None:
            return None
        if now - self._tidied >= _KEPT_S:
            self._tidied = now
            with suppress(OSError):  # it only costs room, and another process tidies too
                for old in directory.iterdir():
                    if time.time() - old.stat().st_mtime > _KEPT_S:
                        old.unlink(missing_ok=True)
        root, trial, attempt = place
        campaign = blake2b(os.fsencode(root.absolute()), digest_size=8).hexdigest()
        return directory / f"{campaign}-{trial}-{attempt}"


def earlier_life(theirs: Any, ours: Mapping[str, Any] | None) -> bool:
    """Return True if SLURM has requeued the task at `theirs`, and it runs now at `ours`."""
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return False
    then, now = theirs.get("restarts"), ours.get("restarts")
    same = all(theirs.get(name) == ours.get(name) is not None for name in ("scheduler", "job"))
    return same and isinstance(then, int) and isinstance(now, int) and then < now


@cache
def host_memory() -> Path | None:
    """Return a directory of this user on this host that the next boot makes void; None if there can be none."""
    try:
        boot = _BOOT.read_text().strip()
        directory = Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}-{boot}"
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError:  # no such clock, or no place: every process then waits for itself
        return None
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return directory if ours else None


def _read(file: Path) -> Sighting | None:
    try:
        sighting = Sighting(*json.loads(file.read_text()))
        return sighting if math.isfinite(sighting.silent_s) else None
    except (OSError, TypeError, ValueError):  # not there, being written, or cut off: not known
        return None
