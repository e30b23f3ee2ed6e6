"""Name a part of a command that takes long on stderr, so that nobody waits in silence."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from runners.output import say

AFTER_S = 2.0
"""Seconds after which a part is named."""


@contextmanager
def slow_notice(text: str) -> Iterator[None]:
    """Write `text` once if the block takes long."""
    timer = Timer(AFTER_S, say, [f"{text} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
