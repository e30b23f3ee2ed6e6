"""Processes that do not outlive the one they work for."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
"""A terminal or a scheduler sends these to every process of a group at once."""


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Processes started inside hear none of `GROUP_SIGNALS` until they unblock them; here they come afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which started it, dies (Linux; elsewhere a closed pipe tells).

    A parent that died before this call is noticed too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
