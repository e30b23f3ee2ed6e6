"""A lock for shells that submit to a campaign or cancel: one at a time."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store.files.atomic import environment_problem, make_directory
from store.files.layout import Layout

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)


@contextmanager
def submit_lock(layout: Layout, told: Callable[[str], None]) -> Iterator[bool]:
    """Wait for the lock; yield True if it is enforced. The lock file exists only while it is held.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    path = layout.submissions / ".lock"
    make_directory(path.parent)
    file, enforced = _acquire(path, told)
    try:
        yield enforced
    finally:
        path.unlink(missing_ok=True)  # before the release, so that a waiting shell sees that it is gone
        os.close(file)


def _acquire(path: Path, told: Callable[[str], None]) -> tuple[int, bool]:
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise environment_problem("write", path, error) from error
        try:
            enforced = _lock(file, told)
        except BaseException:
            os.close(file)
            raise
        if not enforced or _is_current(file, path):
            return file, enforced
        os.close(file)


def _lock(file: int, told: Callable[[str], None]) -> bool:
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told("another shell is submitting to this campaign, or cancels; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _is_current(file: int, path: Path) -> bool:
    """Return True if the open file still has that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
