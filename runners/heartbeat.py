"""A sign of life: a file touched every few seconds, by a thread that a slow training step does not hold up."""

import os
import threading
from pathlib import Path
from typing import final

EVERY_S = 5.0
"""Far below the age at which another host takes an attempt for dead."""


@final
class Heartbeat:
    """Touches `path` from `start` to `stop`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread to be gone."""
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                os.utime(self._path)
            except OSError:
                return  # the campaign is gone or unreachable: the next record will say so, in the training thread
