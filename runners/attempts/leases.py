"""Who is still at work, as one observer can tell it without trusting any other clock.

An attempt of this host is its process. One of another host gives signs of life, and what counts is for how long, by
this host's clock that cannot be set, the latest sign has been the same: the time that it bears is compared with
nothing. So a clock that jumps, here, there or at the file server, neither takes a trial from a live owner nor leaves it
with a dead one. It costs a wait: an observer knows nothing at its first look.

That clock is one for all processes of a host. They share what they saw in its temporary directory, so that a worker
does not begin to wait where another, before it, has waited.
"""

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

from store.layout import Layout
from store.status import last_beat_ns, lease_s, local_process

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Sighting(NamedTuple):
    """A sign of life, and since when it has been the latest."""

    beat_ns: int | None
    """None: there was none."""
    since: float
    """Seconds of the observer's own clock."""


@final
class Leases:
    """An observer; `place` is that of `start.json` for where it runs, `clock` counts seconds and is never set.

    `shared` is where the observers of this host keep what they saw; None: they do not.
    """

    def __init__(
        self,
        place: Mapping[str, Any] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        shared: Callable[[], Path | None] | None = None,
    ) -> None:
        self._place = place
        self._clock = clock
        self._shared = shared or host_memory
        self._seen: dict[tuple[Path, str, int], Sighting] = {}

    def alive(self, layout: Layout, trial: str, attempt: int, start: Mapping[str, Any]) -> bool:
        """Whether the attempt that wrote `start` and no end is at work.

        Raises:
            EnvironmentProblem: the file system does not answer.
        """
        if _was_here(start.get("place"), self._place):
            return False
        here = local_process(start)
        if here is not None:
            return here
        return self._silent_s(layout, trial, attempt) < lease_s(start)

    def _silent_s(self, layout: Layout, trial: str, attempt: int) -> float:
        beat = last_beat_ns(layout, trial, attempt)
        now = self._clock()
        place = (layout.root, trial, attempt)
        known = self._seen.get(place)
        if known is None or known.beat_ns != beat:
            file = self._file(place)
            known = _read(file)
            if known is None or known.beat_ns != beat or known.since > now:
                known = Sighting(beat, now)
                _write(file, known)
            self._seen[place] = known
        return now - known.since

    def _file(self, place: tuple[Path, str, int]) -> Path | None:
        directory = self._shared()
        if directory is None:
            return None
        root, trial, attempt = place
        campaign = blake2b(os.fsencode(root.absolute()), digest_size=8).hexdigest()
        return directory / f"{campaign}-{trial}-{attempt}"


def _was_here(theirs: Any, ours: Mapping[str, Any] | None) -> bool:
    """Whether an attempt ran in an earlier life of the very task that looks: SLURM starts it again once it is over."""
    if ours is None or not isinstance(theirs, Mapping):
        return False
    then, now = theirs.get("restarts"), ours.get("restarts")
    same = all(theirs.get(name) == ours.get(name) is not None for name in ("scheduler", "job"))
    return same and isinstance(then, int) and isinstance(now, int) and then < now


@cache
def host_memory() -> Path | None:
    """A directory of this user on this host that is void after the next boot; None where there can be none."""
    try:
        boot = _BOOT.read_text().strip()
        directory = Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}-{boot}"
        directory.mkdir(mode=0o700, exist_ok=True)
        about = directory.lstat()
    except OSError:  # no such clock, or no place: every process then waits for itself
        return None
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022
    return directory if ours else None


def _read(file: Path | None) -> Sighting | None:
    if file is None:
        return None
    try:
        beat, since = file.read_text().split()
        return Sighting(None if beat == "-" else int(beat), float(since))
    except (OSError, ValueError):  # not there, or being written: not known
        return None


def _write(file: Path | None, found: Sighting) -> None:
    if file is not None:
        with suppress(OSError):  # it only spares others a wait
            file.write_text(f"{'-' if found.beat_ns is None else found.beat_ns} {found.since!r}\n")
