"""How far a trial is, from the files of its attempts alone; no database and no scheduler is asked."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from grid.errors import NotFoundError, StoreError
from store.files import read_json
from store.layout import Layout

Status = Literal["ok", "failed", "running", "pending"]

HEARTBEAT_S = 90.0
"""An attempt on another host is alive while its heartbeat is younger than this."""


@final
@dataclass(frozen=True)
class AttemptState:
    """One attempt that has begun: the records it wrote, and whether its process still lives."""

    attempt: int
    start: dict[str, Any]
    end: dict[str, Any] | None
    alive: bool
    """Whether it has not ended and its process is there."""


@final
@dataclass(frozen=True)
class TrialState:
    """The state of one trial and its begun attempts, oldest first."""

    status: Status
    attempts: tuple[AttemptState, ...]

    @property
    def live(self) -> AttemptState | None:
        """The latest attempt that is at work."""
        return next((found for found in reversed(self.attempts) if found.alive), None)

    @property
    def ended(self) -> AttemptState | None:
        """The latest attempt that has ended."""
        return next((found for found in reversed(self.attempts) if found.end is not None), None)


def process_started(pid: int) -> int | None:
    """When the process `pid` began, in clock ticks since boot; None if it is gone, a zombie, or there is no /proc.

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
    if not Path("/proc/self/stat").exists():
        return _exists(pid)
    started = process_started(pid)
    return started is not None and (pid_started is None or started == pid_started)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def heartbeat_age(layout: Layout, key: str, attempt: int) -> float | None:
    """Seconds since the attempt last touched its heartbeat; None if it never did."""
    try:
        return time.time() - layout.heartbeat(key, attempt).stat().st_mtime
    except FileNotFoundError:
        return None


def attempt_state(layout: Layout, key: str, attempt: int) -> AttemptState | None:
    """The state of one attempt; None while its `start.json` is missing or damaged.

    A damaged `end.json` counts as none: what it said is lost, so the trial is done again.
    """
    start = _sound(layout.start(key, attempt))
    if start is None:
        return None
    end = _sound(layout.end(key, attempt))
    return AttemptState(attempt, start, end, alive=end is None and is_alive(layout, key, attempt, start))


def _sound(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except (NotFoundError, StoreError):
        return None


def is_alive(layout: Layout, key: str, attempt: int, start: dict[str, Any]) -> bool:
    """Whether the process of an attempt that wrote `start` and no end is at work."""
    pid = start.get("pid")
    if start.get("host") == socket.gethostname() and isinstance(pid, int):
        return process_alive(pid, start.get("pid_started"))
    age = heartbeat_age(layout, key, attempt)
    return age is not None and age < HEARTBEAT_S


def trial_state(layout: Layout, key: str) -> TrialState:
    """The state of the trial `key`; a trial without a directory is pending."""
    found = (attempt_state(layout, key, attempt) for attempt in layout.attempts(key))
    attempts = tuple(state for state in found if state is not None)
    return TrialState(_status(attempts), attempts)


def _status(attempts: tuple[AttemptState, ...]) -> Status:
    if any(found.end is not None and found.end.get("status") == "ok" for found in attempts):
        return "ok"
    ended = [found for found in attempts if found.end is not None]
    live = [found for found in attempts if found.alive]
    # a failed trial that is being tried again is running, until that attempt has ended too
    if ended and ended[-1].end is not None and ended[-1].end.get("status") == "failed":
        return "running" if live and live[-1].attempt > ended[-1].attempt else "failed"
    return "running" if live else "pending"
