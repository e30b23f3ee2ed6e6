"""Pages that are made side by side."""

from threading import Event, Lock, Semaphore

from ablate.dashboards.app.page_cache import PageCache


def test_eight_pages_are_made_at_the_same_time_and_the_others_wait() -> None:
    running, most, lock, begun, go = 0, 0, Lock(), Semaphore(0), Event()

    def make() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        begun.release()
        go.wait()
        with lock:
            running -= 1
        return most

    cache: PageCache[int] = PageCache()
    pages = [cache.start(make, (str(number),)) for number in range(20)]
    try:
        for _ in range(8):
            begun.acquire()
        assert not begun.acquire(timeout=0.2)
    finally:
        go.set()
    assert {page.result() for page in pages} == {8}
    assert cache.get(("19",)) is pages[19]
    assert cache.get(("0",)) is None  # the oldest of more than 16


def test_an_error_is_raised_by_the_reader() -> None:
    def fail() -> int:
        raise AttributeError("a bug")

    page = PageCache[int]().start(fail, None)
    assert isinstance(page.exception(), AttributeError)
