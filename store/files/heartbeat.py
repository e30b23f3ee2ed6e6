"""A sign of life: a small file written every few seconds, by a thread that a slow training step does not hold up.

It is one line of fixed width, so that a write replaces all of it at once, and says how far training is.
"""

import json
import math
import os
import threading
from pathlib import Path
from typing import final

EVERY_S = 5.0
"""Seconds between signs of life where nothing else is asked for."""

_WIDTH = 96


@final
class Heartbeat:
    """Writes to `path`, which exists, every `every_s` seconds from `start` to `stop`."""

    def __init__(self, path: Path, every_s: float = EVERY_S) -> None:
        self._path = path
        self._every_s = every_s
        self._progress: tuple[int, int, float] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread to be gone."""
        self._stop.set()
        self._thread.join()

    def tell(self, step: int, steps: int, loss: float) -> None:
        """Content of the next heartbeat."""
        self._progress = step, steps, loss

    def _live(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._beat()
            except OSError:
                # A stale handle or a server that is away may pass. If it lasts, others take the trial over, which the
                # attempt finds out when it saves; a campaign that is gone will be said by the next record.
                continue

    def _beat(self) -> None:
        """Opened afresh each time: a stale handle stays stale, and NFS sends what was written when it is closed."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, _line(self._progress), 0)
        finally:
            os.close(descriptor)


def _line(progress: tuple[int, int, float] | None) -> bytes:
    text = ""
    if progress is not None:
        step, steps, loss = progress
        text = json.dumps({"step": step, "steps": steps, "loss": loss if math.isfinite(loss) else None})
    return f"{text:<{_WIDTH}}\n".encode("ascii")
