"""Child processes that die with their parent."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1

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
