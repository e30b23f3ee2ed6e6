"""Pages that are made or being made, so that the same results make the same page once."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from threading import BoundedSemaphore, Thread
from typing import Final, Generic, TypeVar, final

T = TypeVar("T")
PageKey = tuple[str, ...]
"""Campaign, moment of its results, page and address."""

_MOST_KEPT: Final = 16
_AT_ONCE: Final = 8
"""Pages that are kept and made at the same time, however many are asked for."""


@final
class PageCache(Generic[T]):
    """The last pages by key, each a future."""

    def __init__(self) -> None:
        self._pages: OrderedDict[PageKey, Future[T]] = OrderedDict()
        self._passed: OrderedDict[PageKey, None] = OrderedDict()
        self._slots = BoundedSemaphore(_AT_ONCE)

    def get(self, key: PageKey) -> Future[T] | None:
        return self._pages.get(key)

    def has_passed(self, key: PageKey) -> bool:
        """True if `note_passed` was called for this page lately."""
        return key in self._passed

    def note_passed(self, key: PageKey) -> None:
        """Remember that the address of a page names nothing that is missing."""
        self._passed[key] = None
        if len(self._passed) > _MOST_KEPT:
            self._passed.popitem(last=False)

    def drop(self, key: PageKey) -> None:
        self._pages.pop(key, None)

    def start(self, make: Callable[[], T], key: PageKey | None) -> Future[T]:
        """Make a page in a thread that ends with the process, and keep it under `key`, if it has one."""
        made: Future[T] = Future()
        slot = nullcontext() if key is None else self._slots  # queries have a limit of their own
        Thread(target=_make, args=(made, make, slot), daemon=True).start()
        if key is not None:
            self._pages[key] = made
            if len(self._pages) > _MOST_KEPT:
                self._pages.popitem(last=False)
        return made


def _make(made: Future[T], make: Callable[[], T], slot: AbstractContextManager[object]) -> None:
    try:
        with slot:
            made.set_result(make())
    except BaseException as error:  # noqa: BLE001  (raised by the thread that waits)
        made.set_exception(error)
