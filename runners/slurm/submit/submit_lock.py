"""Taking turns: of several shells that submit to one campaign or call off, one at a time looks and writes."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store.files.atomic import environment_problem, make_directory
from store.files.layout import Layout

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)
"""What file systems without locks say."""


@contextmanager
def submit_lock(layout: Layout, told: Callable[[str], None]) -> Iterator[bool]:
    """Wait until no other shell has the turn. Whether that is certain: not on a file system without locks.

    The lock is a file that is there during the turn and no longer.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    path = layout.submissions / ".lock"
    make_directory(path.parent)
    held, certain = _acquire(path, told)
    try:
        yield certain
    finally:
        path.unlink(missing_ok=True)  # before it is let go: whoever waits for it then sees that it is gone
        os.close(held)


def _acquire(path: Path, told: Callable[[str], None]) -> tuple[int, bool]:
    while True:
        try:
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise environment_problem("write", path, error) from error
        try:
            certain = _locked(held, told)
        except BaseException:
            os.close(held)
            raise
        if not certain or _is(held, path):
            return held, certain
        os.close(held)


def _locked(held: int, told: Callable[[str], None]) -> bool:
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told("another shell is submitting to this campaign, or cancels; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _is(held: int, path: Path) -> bool:
    """Whether the locked file is still the one with that name."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(held)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)
