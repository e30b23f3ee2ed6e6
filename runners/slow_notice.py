"""Parts of a command that take long are named on stderr while they last, so that nobody waits in silence."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Timer
from typing import final

from runners.output import say

AFTER_S = 2.0
"""Seconds in a part, without one inside it, after which it is named."""


@final
class _Part:
    def __init__(self, text: str) -> None:
        self._text = text
        self._said = False
        self._timer: Timer | None = None

    def go(self) -> None:
        if not self._said:
            self._timer = Timer(AFTER_S, self._say)
            self._timer.daemon = True
            self._timer.start()

    def rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        self._said = True
        say(f"{self._text} ...")


_INNERMOST: ContextVar[_Part | None] = ContextVar("innermost", default=None)


@contextmanager
def slow_notice(text: str) -> Iterator[None]:
    """Name a part of the work by `text`, once, if it lasts; while a part inside it is at work, that one is meant."""
    outer, part = _INNERMOST.get(), _Part(text)
    if outer is not None:
        outer.rest()
    token = _INNERMOST.set(part)
    part.go()
    try:
        yield
    finally:
        part.rest()
        _INNERMOST.reset(token)
        if outer is not None:
            outer.go()
