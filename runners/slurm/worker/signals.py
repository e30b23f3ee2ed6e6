"""The signals that end a worker's time, as a flag: nothing is done inside a handler.

USR2 comes before the time limit, TERM at pre-emption and when a job is cancelled. This module loads nothing heavy, so
that they can be heard before anything that takes time to import.
"""

import signal
import time
from types import FrameType

_KILL_WAIT_S = 30.0
_MARGIN_S, _MARGIN = 10.0, 0.2

SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class SignalState:
    """What has been heard so far."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        """The signal that came first."""
        self.at: float | None = None
        """When it came, by `time.monotonic`."""

    def overdue(self, signal_s: float) -> bool:
        """Whether those who are asked to save and leave can be waited for no longer, if the task is to tell its end.

        It has `signal_s` from USR2 on; from TERM on what SLURM lets pass before KILL, 30 s unless the cluster differs.
        """
        if self.first is None or self.at is None:
            return False
        seconds = _KILL_WAIT_S if self.first is signal.SIGTERM else signal_s
        return time.monotonic() - self.at > max(seconds - max(_MARGIN_S, _MARGIN * seconds), seconds / 2)

    def note(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self.first is None:
            self.first, self.at = signal.Signals(number), time.monotonic()


def listen() -> SignalState:
    """Hear from now on; a process that was started with the signals blocked hears those that came before, too."""
    heard = SignalState()
    for name in SIGNALS:
        signal.signal(name, heard.note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return heard


def ignore() -> None:
    """Hear nothing more: an interpreter that ends gives up its handlers, and a late signal would change its status."""
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
