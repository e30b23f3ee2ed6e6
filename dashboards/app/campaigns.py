"""The campaigns that the app shows: brought up to date in the background, read as they are at one moment."""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, final

from ablate.dashboards.data.user_errors import catch_user_error, require
from ablate.grid.errors import AblateError
from ablate.store import Layout, Store
from ablate.store.analysis.judge import conclude
from ablate.store.ingest.ingest import ingest

_LOG: Final = logging.getLogger(__name__)

REFRESH_EVERY_S: Final = 5.0  # seconds from the end of one look for new files to the next

MEMORY_BYTES: Final = 512 * 2**20  # memory of one query; DuckDB spills up to as much to disk, then refuses


class IngestReport(NamedTuple):
    """How new the results of a campaign are."""

    problem: str | None  # why the newest files may be missing, in a sentence
    words: str  # when they were brought in
    warnings: Sequence[str] = ()  # sentences that readers of any of the results must know


@final
class Campaigns:
    """Campaign directories by short names that are part of addresses."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = _name_roots([root.resolve() for root in roots])
        self._stale: dict[str, str | None] = {}
        self._warnings: dict[str, tuple[str, Sequence[str]]] = {}
        """By campaign: the version that was read, and its warnings."""
        self._stop = threading.Event()
        self._follower: threading.Thread | None = None

    @property
    def names(self) -> list[str]:
        """In the order they were given."""
        return list(self._roots)

    def root(self, name: str) -> Path:
        """The directory of a campaign. Raises Unknown."""
        require("the dashboard", "campaign", name, self._roots)
        return self._roots[name]

    def moment(self, name: str) -> str:
        """Changes when there is something new to read; empty while nothing can be read. Raises Unknown."""
        path = Layout(self.root(name)).snapshot
        try:
            status = path.stat()
        except OSError:
            return ""
        return f"{status.st_ino:x}-{status.st_mtime_ns:x}"

    def describe(self, name: str) -> IngestReport:
        """How new the results of a campaign are. Raises Unknown."""
        path = Layout(self.root(name)).snapshot
        when = "no results yet"
        with suppress(OSError):
            when = f"results of {datetime.fromtimestamp(path.stat().st_mtime):%H:%M:%S}"
        return IngestReport(self._stale.get(name), when, self._warnings.get(name, ("", ()))[1])

    @contextmanager
    def reading(self, name: str) -> Iterator[Store]:
        """A store of this moment for one thread.

        Raises Unknown if there is no such campaign. NotFoundError, StoreError, EnvironmentProblem: as `Store.open`.
        """
        root = self.root(name)
        first = not Layout(root).snapshot.exists()
        with Store.open(root, refresh=first, memory_bytes=MEMORY_BYTES, keep_answers=True, conclude=conclude) as store:
            yield store

    def ingest(self) -> None:
        """Ingest new results of every campaign; `describe` reports failures."""
        for name, root in self._roots.items():
            self._stale[name] = _ingest(root)
            version = self.moment(name)
            if version and self._warnings.get(name, ("",))[0] != version:
                self._warnings[name] = version, self._read_warnings(name)

    def _read_warnings(self, name: str) -> Sequence[str]:
        with suppress(AblateError), self.reading(name) as store:
            return store.warnings()
        return ()

    def follow(self, every_s: float = REFRESH_EVERY_S) -> None:
        """Ingest again and again, in a thread that ends with the process or with `close`."""

        def ingesting() -> None:
            while not self._stop.is_set():
                self.ingest()
                self._stop.wait(every_s)

        self._follower = threading.Thread(target=ingesting, name="ablate-dash-follower", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """Ingest no more."""
        self._stop.set()
        if self._follower is not None:
            self._follower.join()


def _ingest(root: Path) -> str | None:
    """Ingest new results, or return the error. No error ends the polling."""
    if not Layout(root).exists():  # ingesting would make its store anew
        return f"There is no campaign in {root} any more."
    try:
        return catch_user_error(lambda: ingest(root, wait=False, threads=1, thorough=False, conclude=conclude))[1]
    except Exception as error:  # noqa: BLE001  # told and logged
        _LOG.exception("cannot bring in what is new in %s", root)
        return (
            f"The dashboard itself failed to bring in new results ({type(error).__name__}); its terminal shows where."
        )


def _name_roots(roots: Sequence[Path]) -> dict[str, Path]:
    """Name campaigns by the last part of their paths, or by more parts or a number if two share it."""
    named: dict[str, Path] = {}
    for root in dict.fromkeys(roots):
        others = [other for other in roots if other != root]
        parts = 1
        while any(other.parts[-parts:] == root.parts[-parts:] for other in others):
            parts += 1
        whole = "-".join(part.strip(os.sep) for part in root.parts[-parts:])
        name = os.fsencode(whole).decode("utf-8", "replace")  # it has to stand in addresses
        numbered = (f"{name}-{n}" for n in count(2))  # a-b is a directory, and b of a
        named[name if name not in named else next(each for each in numbered if each not in named)] = root
    return named
