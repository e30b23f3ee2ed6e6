"""A query that Ctrl-C cancels: it runs beside, since the engine hears nothing while it computes."""

from collections.abc import Callable
from threading import Event, Thread, enumerate as enumerate_threads
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from store.store import Store

T = TypeVar("T")

_LOOK_S = 0.05


def cancellable(store: "Store", ask: Callable[[], T]) -> T:
    """Run `ask`, a query of `store`, so that Ctrl-C cancels it, and return its result.

    Raises:
        KeyboardInterrupt: Ctrl-C; the query has ended.
        Exception: whatever `ask` raised.
    """
    found: list[T] = []
    failed: list[BaseException] = []
    over = Event()  # a thread whose join Ctrl-C ends counts as stopped, and runs

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as error:  # noqa: BLE001  # it is raised where it was waited for
            failed.append(error)
        finally:
            over.set()

    thread = Thread(target=run, daemon=True)
    try:
        thread.start()
        while not over.wait(_LOOK_S):
            pass
    except KeyboardInterrupt:
        while thread in enumerate_threads() and not over.wait(_LOOK_S):  # one call may fall between two steps
            store.interrupt()
        raise
    if failed:
        raise failed[0]
    return found[0]
