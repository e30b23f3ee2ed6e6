"""Child processes that die with their parent, and what they leave behind."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator, Set
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SERVICES = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver", b"_inductor/compile_worker")
"""Processes that libraries start once and use again."""

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
"""Signals that a terminal or scheduler sends to a whole process group."""


@contextlib.contextmanager
def shield_from_signals() -> Iterator[None]:
    """Block `GROUP_SIGNALS` for child processes started inside; deliver them here on exit."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with(parent: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel end this process when its parent dies (Linux only), or exit if it is already dead."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(1)


def running_processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the processes of this machine that are no zombies, with what /proc says from the state on; Linux only."""
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  (three times as fast)
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                yield int(name), fields


def adopt_orphans() -> None:
    """Become the parent of processes that descendants of this process leave behind (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """List the child processes at work, without services of libraries (Linux only)."""
    try:
        if sys.platform == "linux":
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # there is none at all, mostly
    except ChildProcessError:
        return set()
    mine = {pid for pid, fields in running_processes() if int(fields[1]) == os.getpid()}
    return {pid for pid in mine if not any(each in _command_line(pid) for each in _SERVICES)}


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def end_children(but: Set[int]) -> list[str]:
    """Kill child processes other than `but`, and what these leave; return the names of their programs."""
    if not children() - but:
        return []
    gc.collect()  # a loader of torch ends its processes when it goes
    ended = []
    while left := children() - but:
        with contextlib.suppress(ValueError):  # not in the main thread; torch raises there when its processes end
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pid in left:
            ended.append(_program(pid))
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return ended


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return "ended"
