"""The signals that end a worker's time, as a flag: nothing is done inside a handler.

USR2 comes before the time limit, TERM at pre-emption and when a job is cancelled. This module loads nothing heavy, so
that they can be heard before anything that takes time to import.
"""

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class Heard:
    """What has been heard so far."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        """The signal that came first."""
        self.at: float | None = None
        """When it came, by `time.monotonic`."""

    def note(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self.first is None:
            self.first, self.at = signal.Signals(number), time.monotonic()


def listen() -> Heard:
    """Hear from now on; a process that was started with the signals blocked hears those that came before, too."""
    heard = Heard()
    for name in SIGNALS:
        signal.signal(name, heard.note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return heard


def ignore() -> None:
    """Hear nothing more: an interpreter that ends gives up its handlers, and a late signal would change its status."""
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
