"""Where the time of a process goes: functions are wrapped, and time in one counts for it and not for its callers."""

import functools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final


@final
class Spans:
    """Exclusive seconds and calls by label, of the thread that made this."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open: list[str] = []
        self._since = 0.0
        self._thread = threading.get_ident()

    @contextmanager
    def span(self, label: str) -> Iterator[None]:
        """The time within counts for `label`, except what is spent in spans within it."""
        if threading.get_ident() != self._thread:
            yield
            return
        self._turn()
        self._open.append(label)
        self.calls[label] += 1
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def watch(self, owner: Any, name: str, label: str) -> None:
        """From now on, calls of `owner.name` count for `label`; AttributeError if it has moved."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.span(label):
                return function(*args, **kwargs)

        setattr(owner, name, watched)

    def begin_anew(self) -> None:
        """Forget what was counted, between spans."""
        self.seconds.clear()
        self.calls.clear()
        self._thread = threading.get_ident()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now
