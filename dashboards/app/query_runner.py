"""A reader's own SQL: cancelled after a limit, few at a time, and not asked again for nothing."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

import polars as pl

from dashboards.data.user_errors import Unknown
from grid.errors import AblateError
from store import Store

LIMIT_S: Final = 10.0
"""Seconds after which a query is cancelled."""
AT_ONCE: Final = 2
"""Queries that run at one time; the server has more threads for other requests."""
LIVE_S: Final = 1.0
"""A query that took longer is not asked again by new results."""
MOST_BYTES: Final = 64 * 2**20
"""Most rows of a result."""
WAIT_S: Final = 3.0
"""Seconds that a query waits for its turn."""
_KEPT: Final = 16
_LOOK_S: Final = 0.05


class QueryAnswer(NamedTuple):
    """The first rows of a result."""

    frame: pl.DataFrame
    took_s: float
    at: datetime
    """When it was asked."""


_Outcome = QueryAnswer | Exception


@final
class QueryRunner:
    """Answers queries of readers, and keeps the last ones."""

    def __init__(self, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self.running = 0
        """Queries that run just now."""
        self._here: WeakKeyDictionary[Store, dict[tuple[str, int], _Outcome]] = WeakKeyDictionary()
        self._kept: OrderedDict[tuple[str, str, int], tuple[_Outcome, float]] = OrderedDict()

    def answer(self, store: Store, query: str, most: int, *, again: bool = False) -> QueryAnswer:
        """`most` rows of the result of one reading statement; asked once per store.

        `again` is whether nobody asked for it just now: what took long is then answered as it was before.

        Raises:
            Unknown: it was cancelled after the limit, too many run already, or the result is too large to show.
            SpecError, StoreError, EnvironmentProblem: as `Store.sql`.
        """
        key = (str(store.layout.root), query, most)
        with self._lock:
            found = self._here.get(store, {}).get((query, most))
            before = self._kept.get(key)
        if found is None and again and before is not None and before[1] > LIVE_S:
            found = before[0]
        if found is None:
            found = self._answer(store, key)
        if isinstance(found, Exception):
            raise found
        return found

    def _answer(self, store: Store, key: tuple[str, str, int]) -> _Outcome:
        _, query, most = key
        started, at = self._clock(), datetime.now()
        outcome: _Outcome
        try:
            frame = self._run(lambda: store.sql(query, most=most), store)
            outcome = QueryAnswer(frame, self._clock() - started, at)
        except AblateError as error:
            outcome = error.with_traceback(None)  # frames of the stack hold the store
        with self._lock:
            self._here.setdefault(store, {})[query, most] = outcome
            self._kept[key] = outcome, self._clock() - started
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return outcome

    def _run(self, ask: Callable[[], pl.DataFrame], store: Store) -> pl.DataFrame:
        if not self._places.acquire(timeout=WAIT_S):
            raise Unknown(f"{AT_ONCE} queries of readers are running already; run yours again in a moment")
        try:
            self._count(1)
            with limit_time(store, self._limit_s) as over:
                try:
                    frame = ask()
                except Exception:
                    if over.is_set():
                        raise Unknown(_too_long(self._limit_s)) from None
                    raise
        finally:
            self._count(-1)
            self._places.release()
        size = frame.estimated_size()
        if size > MOST_BYTES:
            raise Unknown(
                f"the result has {size / 2**20:,.0f} MiB, and a page takes {MOST_BYTES // 2**20}; ask for fewer rows "
                "or columns, or write it to a file with `ablate sql --parquet FILE`"
            )
        return frame

    def _count(self, more: int) -> None:
        with self._lock:
            self.running += more


def _too_long(limit_s: float) -> str:
    return (
        f"the query was cancelled after {limit_s:g} s; ask for less (one grid, one name, buckets of steps instead of "
        "every step), or run it in a terminal with `ablate sql`, which has no limit"
    )


@contextmanager
def limit_time(store: Store, limit_s: float) -> Iterator[threading.Event]:
    """Inside, the query of `store` is cancelled after `limit_s` seconds, and the event says so.

    An interruption between two steps of a query is not heard, so that it is repeated until the query has ended.
    """
    ended, over = threading.Event(), threading.Event()

    def watch() -> None:
        if ended.wait(limit_s):
            return
        over.set()
        while not ended.wait(_LOOK_S):
            store.interrupt()

    watcher = threading.Thread(target=watch, name="ablate-dash-limit", daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        ended.set()
        watcher.join()
