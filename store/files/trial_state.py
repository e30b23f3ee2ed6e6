"""How far a trial is, from the files of its attempts alone; no database and no scheduler is asked."""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.store.files.atomic import disk_errors, read_json, retry_io
from ablate.store.files.layout import Layout
from ablate.store.state import State, derive_state

MISSED_BEATS = 6
"""An attempt on another host is taken for dead after so many times the seconds between its signs of life."""

LEGACY_BEAT_EVERY_S = 15.0  # seconds between signs of life of an attempt that does not say

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SPACE = Path("/proc/self/ns/pid")
_UNKNOWN = "unknown"


@final
@dataclass(frozen=True)
class AttemptState:
    """One attempt that has begun: the records it wrote, and whether its process still lives."""

    attempt: int
    start: dict[str, Any]
    end: dict[str, Any] | None
    alive: bool


class TrialState(NamedTuple):
    """The state of one trial and its begun attempts, oldest first."""

    state: State
    attempts: tuple[AttemptState, ...]

    @property
    def live(self) -> AttemptState | None:
        """The latest attempt that is at work."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.alive), None)

    @property
    def result(self) -> AttemptState | None:
        """The attempt whose result counts: the latest that is ok."""
        return next((attempt for attempt in reversed(self.attempts) if (attempt.end or {}).get("status") == "ok"), None)

    @property
    def ended(self) -> AttemptState | None:
        return next((attempt for attempt in reversed(self.attempts) if attempt.end is not None), None)


@cache
def pid_space() -> str:
    """Where a process number names one process: the boot of this machine, and the PID namespace of this process.

    Containers of one node may share its name and not its processes. "unknown" where /proc does not show this process
    under the number that it knows itself by.
    """
    with suppress(OSError):
        if Path("/proc/self").readlink().name == str(os.getpid()):
            return f"{_BOOT.read_text().strip()}-{_SPACE.stat().st_ino}"
    return _UNKNOWN


def process_started(pid: int) -> int | None:
    """When the process `pid` began, in clock ticks since boot; None if it is gone or a zombie.

    Together with the number it names a process: numbers are used again, pairs are not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # the command's name is in parentheses and may hold spaces and parentheses itself
    fields = text[text.rindex(b")") + 1 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def process_alive(pid: int, pid_started: float | None) -> bool:
    """Whether the very process that recorded (`pid`, `pid_started`) still exists on this host."""
    started = process_started(pid)
    return started is not None and (pid_started is None or started == pid_started)


def beat_s(start: Mapping[str, Any]) -> float:
    """Seconds between signs of life of the attempt with this start record."""
    every = start.get("heartbeat_s")
    return float(every) if isinstance(every, int | float) and 0 < every < math.inf else LEGACY_BEAT_EVERY_S


def lease_s(start: Mapping[str, Any]) -> float:
    """Seconds without a sign of life after which an attempt with this start record is taken for dead."""
    return MISSED_BEATS * beat_s(start)


def last_beat_ns(layout: Layout, key: str, attempt: int) -> int | None:
    """When the attempt gave its last sign of life, in nanoseconds by the clock that stamps files; None if never."""
    path = layout.heartbeat(key, attempt)
    with disk_errors("read", path), suppress(FileNotFoundError):
        return retry_io(lambda: _modified_ns(path))
    return None


def _modified_ns(path: Path) -> int:
    with path.open("rb") as file:  # NFS asks the server at an open, and answers a plain stat from its cache
        return os.fstat(file.fileno()).st_mtime_ns


def heartbeat_age(layout: Layout, key: str, attempt: int) -> float | None:
    """Seconds since the attempt's last sign of life, below 0 where clocks differ; None if none can be read."""
    beat = None
    with suppress(EnvironmentProblem):
        beat = last_beat_ns(layout, key, attempt)
    return None if beat is None else time.time() - beat / 1e9


def local_process(start: Mapping[str, Any]) -> bool | None:
    """Whether the process of an attempt of this host is there; None for one of another host, container or boot.

    Records that do not say so are of this host.
    """
    pid, space = start.get("pid"), start.get("pid_space")
    if start.get("host") != socket.gethostname() or not isinstance(pid, int):
        return None
    if space is not None and (space == _UNKNOWN or space != pid_space()):
        return None
    return process_alive(pid, start.get("pid_started"))


def is_alive(layout: Layout, key: str, attempt: int, start: Mapping[str, Any]) -> bool:
    """Return True if the process of an attempt that wrote `start` and no end still runs; for displays.

    For another host it compares clocks, so it can be wrong by their difference.
    `ablate.runners.attempts.leases` cannot.
    """
    here = local_process(start)
    if here is not None:
        return here
    age = heartbeat_age(layout, key, attempt)
    return age is not None and age < lease_s(start)


Alive = Callable[[Layout, str, int, Mapping[str, Any]], bool]
"""Decides whether an attempt without an end is at work, from its start record."""


def attempt_state(layout: Layout, key: str, attempt: int, alive: Alive = is_alive) -> AttemptState | None:
    """The state of one attempt; None without a sound `start.json`.

    A damaged `end.json` counts as none, but the attempt has ended.
    """
    start, end = (_read(path(key, attempt)) for path in (layout.start, layout.end))
    if start is None:
        return None
    if is_open := end is None:
        is_open = not os.path.lexists(layout.end(key, attempt))
        end = None if is_open else _read(layout.end(key, attempt))  # it may have been written meanwhile
    return AttemptState(attempt, start, end, alive=is_open and alive(layout, key, attempt, start))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except (NotFoundError, StoreError):
        return None


def trial_state(layout: Layout, key: str, alive: Alive = is_alive) -> TrialState:
    """The state of the trial `key`; a trial without a directory is pending."""
    states = (attempt_state(layout, key, attempt, alive) for attempt in layout.attempts(key))
    attempts = tuple(state for state in states if state is not None)
    return TrialState(_derive(attempts), attempts)


def _derive(attempts: tuple[AttemptState, ...]) -> State:
    ends = [(each.attempt, each.end["status"]) for each in attempts if each.end is not None and "status" in each.end]
    live = max((each.attempt for each in attempts if each.alive), default=0)
    return derive_state(
        ok=any(status == "ok" for _, status in ends),
        # a failed trial that is being tried again is running, until that attempt has ended too
        failed=bool(ends) and ends[-1][1] == "failed" and live < ends[-1][0],
        live=live > 0,
        stopped=bool(ends) and ends[-1] == (attempts[-1].attempt, "stopped"),
        begun=bool(attempts),
    )
