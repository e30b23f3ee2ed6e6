"""Handles Ctrl-C and SIGTERM during a run: the first stops cleanly, the second at once."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, final

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@final
class Interrupts:
    """Sets `requested` and calls `told` on the first signal; raises KeyboardInterrupt on the second.

    Does nothing outside the main thread. A signal that the process ignores stays ignored.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self.requested = False
        self._told = told
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                if signal.getsignal(name) is not signal.SIG_IGN:
                    self._before[name] = signal.signal(name, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._told()
