"""Signals that end a worker's time; the handlers only set a flag.

USR2 comes before the time limit, TERM at pre-emption and when a job is cancelled. This module imports nothing heavy, so
signals are handled early.
"""

import signal
import time
from types import FrameType

_KILL_WAIT_S = 30.0
"""SLURM's default time between TERM and KILL."""
_MARGIN_S, _MARGIN = 10.0, 0.2

SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class SignalState:
    """The first signal and its time."""

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.at: float | None = None
        """Time of the first signal, by `time.monotonic`."""

    def is_overdue(self, signal_s: float) -> bool:
        """Return True if the task can wait no longer for its workers to save: it has `signal_s` from USR2 on."""
        if self.first is None or self.at is None:
            return False
        seconds = _KILL_WAIT_S if self.first is signal.SIGTERM else signal_s
        return time.monotonic() - self.at > max(seconds - max(_MARGIN_S, _MARGIN * seconds), seconds / 2)

    def note(self, number: int, _frame: FrameType | None) -> None:
        if self.first is None:
            self.first, self.at = signal.Signals(number), time.monotonic()


def listen() -> SignalState:
    """Install the handlers and unblock the signals, including those that came before."""
    state = SignalState()
    for name in SIGNALS:
        signal.signal(name, state.note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return state


def ignore() -> None:
    """Ignore further signals: one during the interpreter's exit would change the exit status."""
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
