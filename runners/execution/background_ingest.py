"""Ingests results while trials train, and publishes a snapshot of the store.

The database is a cache of the files, so an error here is reported once and never stops a run.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

_SHARE = 10
"""The pause after an ingest is at least this many times its duration."""


@final
class BackgroundIngest:
    """Ingests every `every_s` seconds in a thread; passes each new problem to `notify`."""

    def __init__(self, root: Path, every_s: float, notify: Callable[[str], None]) -> None:
        self._root, self._every_s, self._notify = root, every_s, notify
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ingest", daemon=True)

    def __enter__(self) -> "BackgroundIngest":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def once(self, *, wait: bool) -> None:
        """Ingest now; report and keep a problem.

        With `wait`, wait for another ingest and read every trial; else skip if one is running, and read changes only.
        """
        from ablate.store.analysis.judge import conclude  # here: a run that ingests nothing loads no database
        from ablate.store.ingest.ingest import ingest

        try:
            ingest(self._root, wait=wait, threads=1, thorough=wait, conclude=conclude if wait else None)
        except Exception as error:  # noqa: BLE001  # reported below: a run does not depend on its store
            text = f"results are on disk but not in the store yet: {error}"
            if text not in self.problems:
                self.problems.append(text)
                self._notify(text)

    def _loop(self) -> None:
        pause = self._every_s
        while not self._stop.wait(pause):
            began = time.monotonic()
            self.once(wait=False)
            pause = max(self._every_s, _SHARE * (time.monotonic() - began))
