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
def submit_lock(layout: Layout, notify: Callable[[str], None]) -> Iterator[bool]:
    """Wait for the lock; yield True if it is enforced. The lock file exists only while it is held.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    path = layout.submissions / ".lock"
    make_directory(path.parent)
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise environment_problem("write", path, error) from error
        try:
            enforced = _lock(file, notify)
            if not enforced or _is_current(file, path):
                try:
                    yield enforced
                finally:
                    path.unlink(missing_ok=True)  # before the release, so that a waiting shell sees that it is gone
                return
        finally:
            os.close(file)


def _lock(file: int, notify: Callable[[str], None]) -> bool:
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notify("another shell is submitting to this campaign, or cancels; waiting for it")
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
